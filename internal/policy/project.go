package policy

import (
	"strconv"

	"github.com/aurea-dev/aurea/internal/fault"
)

// CodeOtherProject is the code of what a key is refused that is narrowed to
// another project.
const CodeOtherProject = "other_project"

// Project is the only project in which the caller sees and makes things; 0 is
// that it is not narrowed to one.
func (c Caller) Project() int64 {
	if c.Scope == nil {
		return 0
	}
	return c.Scope.Project
}

// OnlyOwner is the only owner whose rows the caller sees; "" is everybody.
func (c Caller) OnlyOwner() string {
	if c.seesOwners() {
		return ""
	}
	return c.ID
}

// Sees reports whether the caller sees what belongs to an owner and a project; 0
// is no project. A bound to a project comes on top of that to an owner: it never
// lets anybody see more.
func (c Caller) Sees(owner string, project int64) bool {
	if own := c.Project(); own != 0 && project != own {
		return false
	}
	return c.seesOwners() || owner == c.ID
}

// Place is the project that the caller means, where a request names one or, with
// 0, none. A key that is narrowed means its own, and may name no other.
func (c Caller) Place(named int64) (int64, error) {
	own := c.Project()
	switch {
	case own == 0:
		return named, nil
	case named != 0 && named != own:
		return 0, c.otherProject()
	}
	return own, nil
}

// PlaceLabel is Place for projects that are written as text, as labels are.
func (c Caller) PlaceLabel(named string) (string, error) {
	own := c.Project()
	if own == 0 {
		return named, nil
	}
	label := strconv.FormatInt(own, 10)
	if named != "" && named != label {
		return "", c.otherProject()
	}
	return label, nil
}

func (c Caller) otherProject() error {
	return fault.New(fault.Denied, "This key is narrowed to the project %d, and has no say in another.", c.Project()).WithCode(CodeOtherProject)
}

// NoProject refuses a caller that is narrowed to a project what belongs to none.
func (c Caller) NoProject(what string) error {
	if c.Project() == 0 {
		return nil
	}
	return fault.New(fault.Denied, "This key is narrowed to the project %d, and %s belong to no project.", c.Project(), what).WithCode("no_project")
}

// ReplyKey is the idempotency key under which an answer to the caller is kept:
// keys of one owner that are narrowed to different projects must not get each
// other's. No header can have the mark in it.
func (c Caller) ReplyKey(key string) string {
	if c.Project() == 0 || key == "" {
		return key
	}
	const mark = "\x1f"
	return mark + strconv.FormatInt(c.Project(), 10) + mark + key
}
