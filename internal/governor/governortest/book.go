package governortest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// Book keeps what was logged, as lines of JSON.
type Book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes lines.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Lines are those with a message.
func (b *Book) Lines(message string) (list []map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		var x map[string]any
		if json.Unmarshal([]byte(line), &x) == nil && x["msg"] == message {
			list = append(list, x)
		}
	}
	return list
}
