package fault

import (
	"slices"
	"testing"
	"time"
)

func plan(seed uint64, n int) []Fault {
	p := NewPlan(seed, Kinds(), 4, 2*time.Second)
	faults := make([]Fault, n)
	for i := range faults {
		faults[i] = p.Next()
	}
	return faults
}

func TestSeedRepeatsThePlan(t *testing.T) {
	if !slices.Equal(plan(7, 100), plan(7, 100)) {
		t.Error("one seed made two plans")
	}
	if slices.Equal(plan(7, 100), plan(8, 100)) {
		t.Error("two seeds made one plan")
	}
}

func TestEveryKindComesBeforeOneComesAgain(t *testing.T) {
	first := plan(1, len(Kinds()))
	for _, kind := range Kinds() {
		if !slices.ContainsFunc(first, func(f Fault) bool { return f.Kind == kind }) {
			t.Errorf("no %s among %v", kind, first)
		}
	}
}

func TestOutagesAreRare(t *testing.T) {
	outages := 0
	for _, f := range plan(1, 3*len(Kinds())-2) {
		if f.Kind == Outage {
			outages++
		}
	}
	if outages != 1 {
		t.Errorf("%d outages in three rounds of faults", outages)
	}
}

func TestOutageAloneComesAgain(t *testing.T) {
	p := NewPlan(1, []Kind{Outage}, 1, time.Second)
	for range 5 {
		if f := p.Next(); f.Kind != Outage {
			t.Errorf("made a %s of it", f.Kind)
		}
	}
}

func TestPauseOutlastsTheLease(t *testing.T) {
	for _, f := range plan(1, 1000) {
		if (f.Kind == PauseServer || f.Kind == Outage) && f.Length <= 2*time.Second {
			t.Errorf("%s lasts %v", f.Kind, f.Length)
		}
	}
}

func TestUnknownKindIsRefused(t *testing.T) {
	if kinds, err := ParseKinds("cut,flood"); err == nil {
		t.Errorf("made %v of it", kinds)
	}
}
