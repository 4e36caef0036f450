package fault_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
)

func TestKindsAreToldApart(t *testing.T) {
	t.Parallel()
	names, statuses := map[string]bool{}, map[int]bool{}
	for _, k := range fault.Kinds() {
		names[k.String()], statuses[k.Status()] = true, true
	}
	if n := len(fault.Kinds()); len(names) != n || len(statuses) != n {
		t.Errorf("%d kinds have %d names and %d statuses", n, len(names), len(statuses))
	}
}

func TestAFaultKeepsKindCodeFieldAndCauseThroughWrapping(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("store plan: %w", fault.Field("tasks[2].role", "cannot be read: %w", io.ErrUnexpectedEOF).WithCode("odd"))
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "odd" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("kind %v, code %q, cause kept: %t", fault.KindOf(err), fault.CodeOf(err), errors.Is(err, io.ErrUnexpectedEOF))
	}
	var f *fault.Error
	if !errors.As(err, &f) || f.Field != "tasks[2].role" || f.Error() != "tasks[2].role: cannot be read: unexpected EOF" {
		t.Errorf("the fault reads %v", f)
	}
}

func TestAnUnlabelledErrorIsOurs(t *testing.T) {
	t.Parallel()
	if k := fault.KindOf(io.EOF); k != fault.Internal || fault.CodeOf(io.EOF) != "internal" || k.Status() != 500 {
		t.Errorf("got %v", k)
	}
	if fault.Is(nil, fault.Internal) {
		t.Error("no error is not a fault")
	}
}
