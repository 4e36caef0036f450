package httpapi

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aurea-dev/aurea/internal/fault"
	"github.com/aurea-dev/aurea/internal/job"
)

// checkPrintable refuses what should not stand in a log, a header or a key.
func checkPrintable(field, s string) error {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fault.Field(field, "must have printable characters only")
	}
	return nil
}

// checkWord refuses what cannot be the name of a worker or a model.
func checkWord(field, s string) error {
	if len(s) > job.MaxWord {
		return fault.Field(field, "is %d bytes long; at most %d are allowed", len(s), job.MaxWord)
	}
	if s != "" && strings.TrimSpace(s) == "" {
		return fault.Field(field, "must not be blank")
	}
	return checkPrintable(field, s)
}

// demandWord refuses a name that is missing, too.
func demandWord(field, s string) error {
	if s == "" {
		return fault.Field(field, "is missing")
	}
	return checkWord(field, s)
}

// one returns the value that was given in one of two places. Two that differ
// are refused: which of them was meant?
func one(field, query, body string) (string, error) {
	if query != "" && body != "" && query != body {
		return "", fault.Field(field, "is %q in the query and %q in the body", clip(query, 60), clip(body, 60))
	}
	if query != "" {
		return query, nil
	}
	return body, nil
}
