package machinesapi_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/machine"
	"github.com/aurea-dev/aurea/internal/machinesapi"
)

// TestUpdateThatIsRefused changes nothing, wherever the machine stands.
func TestUpdateThatIsRefused(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		stands machine.State
		create string
		steer  string
	}{
		{machine.Started, `{"config":{"image":"x","init":{"exec":["sleep"]}}}`, ""},
		{machine.Suspended, `{"config":{"image":"x"}}`, "/suspend"},
		{machine.Stopped, `{"config":{"image":"x"}}`, "/stop"},
		{machine.Created, `{"config":{"image":"x"},"skip_launch":true}`, ""},
	} {
		t.Run(string(x.stands), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			at := machines + "/" + s.create(x.create).ID
			if x.steer != "" {
				s.admin("POST", at+x.steer, "").into(200, nil)
			}
			var before, after machinesapi.Machine
			s.admin("GET", at, "").into(200, &before)
			boxes := s.open()
			for status, refuse := range map[int]error{
				400: fault.Field("limits.memory_bytes", "is less than a sandbox needs").WithCode("limit_too_small"),
				404: fault.New(fault.NotFound, "there is no image here").WithCode("image_not_found"),
			} {
				s.worker.refuse = refuse
				if e := s.admin("POST", at, `{"config":{"image":"nope:1","guest":{"memory_mb":1}}}`).refused(status); status == 400 && !strings.Contains(e, "config.guest.memory_mb: ") {
					t.Errorf("it names no field of the configuration: %s", e)
				}
			}
			s.worker.refuse = nil
			s.admin("GET", at, "").into(200, &after)
			if before.State != x.stands || after.State != x.stands || string(after.Config) != string(before.Config) ||
				after.InstanceID != before.InstanceID || after.Sandbox != before.Sandbox || s.open() != boxes {
				t.Fatalf("%d sandboxes, was %d; before %+v, after %+v", s.open(), boxes, before, after)
			}
			if e := after.Events[0]; e.Type != "update" || e.Request == nil || !strings.Contains(e.Request.Reason, "sandbox needs") && !strings.Contains(e.Request.Reason, "no image") {
				t.Errorf("its owner does not read why: %+v", e)
			}
			s.admin("POST", at, `{"config":{"image":"y"}}`).into(200, &after)
			if after.State != machine.Started || s.open() != 1 {
				t.Errorf("a good update after that: %+v, %d sandboxes", after, s.open())
			}
		})
	}
}

// TestUpdatesFollowEachOther makes the sandbox of each beside that of the one
// before.
func TestUpdatesFollowEachOther(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x"}}`)
	for _, image := range []string{"a", "b", "c"} {
		var now machinesapi.Machine
		s.admin("POST", machines+"/"+m.ID, `{"config":{"image":"`+image+`"}}`).into(200, &now)
		if now.State != machine.Started || now.ImageRef.Repository != image || now.Sandbox == m.Sandbox || s.open() != 1 {
			t.Fatalf("%s: %+v, %d sandboxes", image, now, s.open())
		}
		m = now
	}
	s.admin("DELETE", machines+"/"+m.ID, "").into(200, nil)
	if s.open() != 0 {
		t.Error("something is left")
	}
}

// TestUpdateWithoutRoomForBoth ends the old sandbox first, and starts the
// machine again as it was when the new one cannot be made.
func TestUpdateWithoutRoomForBoth(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.worker.room = 1
	m := s.create(`{"config":{"image":"x"}}`)
	at := machines + "/" + m.ID
	var now machinesapi.Machine
	s.admin("POST", at, `{"config":{"image":"y"}}`).into(200, &now)
	if now.State != machine.Started || now.ImageRef.Repository != "y" || s.open() != 1 {
		t.Fatalf("%+v, %d sandboxes", now, s.open())
	}
	s.worker.lacks = "nope"
	s.admin("POST", at, `{"config":{"image":"nope"}}`).refused(404)
	var after machinesapi.Machine
	s.admin("GET", at, "").into(200, &after)
	if after.State != machine.Started || string(after.Config) != string(now.Config) || after.InstanceID != now.InstanceID || s.open() != 1 {
		t.Errorf("%+v, %d sandboxes", after, s.open())
	}
}

// TestUpdateThatIsCutShort leaves the machine as it was when its manager dies in
// the middle, and no second sandbox.
func TestUpdateThatIsCutShort(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x"}}`)
	at := machines + "/" + m.ID
	s.worker.mu.Lock()
	s.worker.hold = make(chan struct{})
	s.worker.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { s.admin("POST", at, `{"config":{"image":"y"}}`) })
	for s.worker.made() < 2 || s.state(m.ID) != "replacing" {
	}
	s.smith.Stop()
	group.Wait()
	s.worker.mu.Lock()
	s.worker.hold = nil
	s.worker.mu.Unlock()
	s.live()
	s.admin("GET", at+"/wait?state=started", "").into(200, nil)
	var now machinesapi.Machine
	s.admin("GET", at, "").into(200, &now)
	if now.Sandbox != m.Sandbox || now.InstanceID != m.InstanceID || s.open() != 1 {
		t.Errorf("%+v, %d sandboxes", now, s.open())
	}
}

// TestDestroyWhileItIsUpdated leaves neither sandbox.
func TestDestroyWhileItIsUpdated(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.create(`{"config":{"image":"x"}}`)
	at := machines + "/" + m.ID
	hold := make(chan struct{})
	s.worker.mu.Lock()
	s.worker.hold = hold
	s.worker.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { s.admin("POST", at, `{"config":{"image":"y"}}`) })
	for s.worker.made() < 2 {
	}
	s.admin("DELETE", at, "").into(200, nil)
	close(hold)
	group.Wait()
	if s.open() != 0 || s.state(m.ID) != "none" {
		t.Errorf("%d sandboxes are left of a machine that is %s", s.open(), s.state(m.ID))
	}
}
