package manager

import (
	"maps"
	"slices"
	"strings"

	"github.com/aurea-dev/aurea/internal/language"
)

// Languages are what code can be written in on the workers whose command stream
// is open here, by name. One that is active on any of them is active.
func (m *Manager) Languages() []language.Status {
	merged := map[string]language.Status{}
	for _, all := range m.sessions.languages() {
		for _, l := range all {
			if had, ok := merged[l.Name]; !ok || !had.Active && l.Active {
				merged[l.Name] = l
			}
		}
	}
	return slices.SortedFunc(maps.Values(merged), func(a, b language.Status) int { return strings.Compare(a.Name, b.Name) })
}

// languages is what each connected worker said last, in the order of their ids.
func (ss *sessions) languages() [][]language.Status {
	ss.mu.Lock()
	byWorker := maps.Clone(ss.byWorker)
	ss.mu.Unlock()
	var out [][]language.Status
	for _, id := range slices.Sorted(maps.Keys(byWorker)) {
		s := byWorker[id]
		s.mu.Lock()
		if s.stream != nil {
			out = append(out, s.languages)
		}
		s.mu.Unlock()
	}
	return out
}
