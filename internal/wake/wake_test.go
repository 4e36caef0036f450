package wake

import "testing"

func TestEverybodyIsWokenOnce(t *testing.T) {
	t.Parallel()
	var s Signal
	s.Wake() // for nobody
	a, b := s.Wait(), s.Wait()
	select {
	case <-a:
		t.Fatal("a wake from before counts")
	default:
	}
	s.Wake()
	<-a
	<-b
	select {
	case <-s.Wait():
		t.Error("who comes later is woken too")
	default:
	}
}
