package replay

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
)

// holds checks the property for an answer, first asked for over each of some protocols, and what the table keeps of it. It
// returns the last key.
func (r *rig) holds(t tb, a answer, firsts ...protocol) (key string) {
	t.Helper()
	name, path := r.register(a), a.path()
	fresh := make(map[protocol]wire)
	for _, p := range protocols {
		fresh[p] = r.call(t, p, path, name, "")
	}
	for _, first := range firsts {
		key = r.newKey()
		got := r.call(t, first, path, name, key)
		if d := got.differs(fresh[first], a.newReply); d != "" {
			t.Fatalf("first over %s: guarded and unguarded %s", first.name, d)
		}
		for _, p := range protocols {
			replay := r.call(t, p, path, name, key)
			if !replay.takeMark() {
				t.Fatalf("first over %s, then over %s: not marked as a replay: %v", first.name, p.name, replay)
			}
			if d := replay.differs(fresh[p], a.newReply); d != "" {
				t.Fatalf("first over %s, then over %s: in the replay and the fresh answer %s", first.name, p.name, d)
			}
		}
		if n := r.ran(key); n != 1 {
			t.Fatalf("the handler ran %d times", n)
		}
		r.mustKeep(t, key, a, fresh[connectJSON])
	}
	if log := r.log.take(); log != "" {
		t.Fatalf("logged: %s", log)
	}
	return key
}

// holdsForAll checks the property for each of many answers in both modes: in one of them first asked for over each
// protocol in turn, since what is stored does not depend on it, and in the other over each of some.
func holdsForAll(t *testing.T, answers map[string]answer, firsts ...protocol) {
	t.Helper()
	shared := newTable(t)
	for _, mode := range modes {
		r := newRig(t, shared, mode)
		for i, name := range slices.Sorted(maps.Keys(answers)) {
			over := []protocol{protocols[i%len(protocols)]}
			if mode == "leased" && len(firsts) > 0 {
				over = firsts
			}
			t.Run(mode+"/"+name, func(t *testing.T) { _ = r.holds(t, answers[name], over...) })
		}
	}
}

// messages makes answers of messages.
func messages(all map[string]proto.Message) map[string]answer {
	answers := make(map[string]answer, len(all))
	for name, m := range all {
		answers[name] = answer{message: m}
	}
	return answers
}
