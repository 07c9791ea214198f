package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// Read returns a journal's events in their order; an error is the last element. A last line without its end is what a
// killed process was writing, and is passed over.
func Read(name string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		file, err := os.Open(name)
		if err != nil {
			yield(Event{}, fmt.Errorf("journal: %w", err))
			return
		}
		defer file.Close() //nolint:errcheck // it was only read
		for lines := bufio.NewReader(file); ; {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				return
			}
			var e Event
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				yield(Event{}, fmt.Errorf("journal: %s: %w", name, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}
