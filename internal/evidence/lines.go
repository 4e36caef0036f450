package evidence

import "strings"

// edit says that the lines a0 to a1 of the old text became b0 to b1 of the new.
type edit struct{ a0, a1, b0, b1 int }

// The bounds of the search for a small edit. Over them the answer is still
// right, only larger: what lies between the first and the last difference is
// replaced as a whole.
const (
	maxEdits = 1000
	maxSteps = 20_000_000
)

// splitLines cuts a text into lines that keep their line feed.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// compare returns the edits that turn a into b, in order and apart from each
// other.
func compare(a, b []string) []edit {
	x, y := intern(a, b)
	head := 0
	for head < len(x) && head < len(y) && x[head] == y[head] {
		head++
	}
	tail := 0
	for tail < len(x)-head && tail < len(y)-head && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	x, y = x[head:len(x)-tail], y[head:len(y)-tail]
	if len(x) == 0 && len(y) == 0 {
		return nil
	}
	whole := []edit{{head, head + len(x), head, head + len(y)}}
	if len(x) == 0 || len(y) == 0 {
		return whole
	}
	trace, ok := search(x, y)
	if !ok {
		return whole
	}
	edits := trace.edits(len(x), len(y))
	for i, e := range edits {
		edits[i] = edit{e.a0 + head, e.a1 + head, e.b0 + head, e.b1 + head}
	}
	return edits
}

// intern gives equal lines equal numbers, so that the search compares numbers.
func intern(a, b []string) (x, y []int32) {
	known := make(map[string]int32, len(a)+len(b))
	number := func(lines []string) []int32 {
		out := make([]int32, len(lines))
		for i, line := range lines {
			n, ok := known[line]
			if !ok {
				n = int32(len(known)) //nolint:gosec // texts are far smaller
				known[line] = n
			}
			out[i] = n
		}
		return out
	}
	return number(a), number(b)
}

// rounds[d] holds, for each diagonal k from -d to d in steps of two, how far
// into the old text d single edits can reach. It is Myers' greedy search, which
// needs time in proportion to the size of the edit.
type rounds [][]int32

// at is the reach on diagonal k in round d. Outside the round nothing was
// reached.
func (r rounds) at(d, k int) int32 {
	if d < 0 || k < -d || k > d {
		return -1
	}
	return r[d][(k+d)/2]
}

// down reports whether the best way to diagonal k in round d was an insertion.
func (r rounds) down(d, k int) bool {
	return k == -d || (k != d && r.at(d-1, k-1) < r.at(d-1, k+1))
}

func search(x, y []int32) (rounds, bool) {
	var r rounds
	steps := 0
	for d := 0; d <= maxEdits; d++ {
		r = append(r, make([]int32, d+1))
		for k := -d; k <= d; k += 2 {
			var i int32
			switch {
			case d == 0:
			case r.down(d, k):
				i = r.at(d-1, k+1)
			default:
				i = r.at(d-1, k-1) + 1
			}
			from := i
			for int(i) < len(x) && int(i)-k < len(y) && int(i)-k >= 0 && x[i] == y[int(i)-k] {
				i++
			}
			r[d][(k+d)/2] = i
			if int(i) >= len(x) && int(i)-k >= len(y) {
				return r, true
			}
			if steps += int(i-from) + 1; steps > maxSteps {
				return nil, false
			}
		}
	}
	return nil, false
}

// edits walks back from the end and joins single edits that touch.
func (r rounds) edits(i, j int) []edit {
	var back []edit
	for d := len(r) - 1; d > 0; d-- {
		k := i - j
		var e edit
		if r.down(d, k) {
			i = int(r.at(d-1, k+1))
			j = i - (k + 1)
			e = edit{i, i, j, j + 1}
		} else {
			i = int(r.at(d-1, k-1))
			j = i - (k - 1)
			e = edit{i, i + 1, j, j}
		}
		if n := len(back); n > 0 && back[n-1].a0 == e.a1 && back[n-1].b0 == e.b1 {
			back[n-1].a0, back[n-1].b0 = e.a0, e.b0
		} else {
			back = append(back, e)
		}
	}
	for l, h := 0, len(back)-1; l < h; l, h = l+1, h-1 {
		back[l], back[h] = back[h], back[l]
	}
	return back
}
