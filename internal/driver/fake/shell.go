package fake

import (
	"errors"
	"strings"
)

// The two ways in which a text is no script of ours: it is beyond the small
// language, or it is wrong in any shell.
var (
	errBeyond = errors.New("beyond what the fake shell understands")
	errSyntax = errors.New("syntax error")
)

// piece is a part of a word: a text, or a variable to put in its place.
type piece struct {
	text     string
	variable bool
	quoted   bool
}

type word []piece

// literal returns the word's text when nothing in it is quoted or expanded.
func (w word) literal() (string, bool) {
	if len(w) == 1 && !w[0].variable && !w[0].quoted {
		return w[0].text, true
	}
	return "", false
}

// redirect sends a stream to a file, or to where another stream goes.
type redirect struct {
	fd     int
	file   word // nil when it copies
	extend bool
	copyOf int
}

// command is a simple command and how it is joined to what follows.
type command struct {
	words     []word
	redirects []redirect
	join      string // ";", "&&", "||" or "&"
}

const maxScript = 1 << 20

// parse reads a script of the small language.
func parse(text string) ([]command, error) {
	if len(text) > maxScript {
		return nil, errBeyond
	}
	p := parser{text: text}
	var commands []command
	for {
		c, more, err := p.command()
		if err != nil {
			return nil, err
		}
		if len(c.words) > 0 || len(c.redirects) > 0 {
			commands = append(commands, c)
		} else if c.join == "&&" || c.join == "||" || c.join == "&" {
			return nil, errSyntax
		}
		if !more {
			if n := len(commands); n > 0 && (commands[n-1].join == "&&" || commands[n-1].join == "||") {
				return nil, errSyntax
			}
			return commands, nil
		}
	}
}

type parser struct {
	text string
	at   int
}

func (p *parser) rest() string { return p.text[p.at:] }

func (p *parser) take(s string) bool {
	if strings.HasPrefix(p.rest(), s) {
		p.at += len(s)
		return true
	}
	return false
}

// command reads up to and including the next joint; more says whether there was
// one.
func (p *parser) command() (c command, more bool, err error) {
	for {
		p.blank()
		switch {
		case p.at == len(p.text):
			c.join = ";"
			return c, false, nil
		case p.take("#"):
			if i := strings.IndexByte(p.rest(), '\n'); i >= 0 {
				p.at += i
			} else {
				p.at = len(p.text)
			}
		case p.take("&&"):
			c.join = "&&"
			p.newlines()
			return c, true, nil
		case p.take("||"):
			c.join = "||"
			p.newlines()
			return c, true, nil
		case p.take(";;"):
			return c, false, errSyntax
		case p.take(";"), p.take("\n"):
			c.join = ";"
			return c, true, nil
		case p.take("&"):
			c.join = "&"
			return c, true, nil
		case strings.ContainsRune("|(){}`", rune(p.text[p.at])):
			return c, false, errBeyond
		default:
			if err := p.part(&c); err != nil {
				return c, false, err
			}
		}
	}
}

func (p *parser) blank() {
	for p.at < len(p.text) {
		switch {
		case p.text[p.at] == ' ' || p.text[p.at] == '\t':
			p.at++
		case strings.HasPrefix(p.rest(), "\\\n"):
			p.at += 2
		default:
			return
		}
	}
}

func (p *parser) newlines() {
	for {
		p.blank()
		if !p.take("\n") {
			return
		}
	}
}

// part reads a redirection or a word into the command.
func (p *parser) part(c *command) error {
	fd, start := -1, p.at
	if strings.HasPrefix(p.rest(), "1>") || strings.HasPrefix(p.rest(), "2>") || strings.HasPrefix(p.rest(), "0<") {
		fd = int(p.text[p.at] - '0')
		p.at++
	}
	switch {
	case p.take("<<"), p.take("<>"), p.take("<&"), p.take(">|"):
		return errBeyond
	case p.take(">>"):
		return p.redirect(c, redirect{fd: max(fd, 1), extend: true})
	case p.take(">&"):
		to := p.rest()
		if !strings.HasPrefix(to, "1") && !strings.HasPrefix(to, "2") {
			return errBeyond
		}
		p.at++
		c.redirects = append(c.redirects, redirect{fd: max(fd, 1), copyOf: int(to[0] - '0')})
		return nil
	case p.take(">"):
		return p.redirect(c, redirect{fd: max(fd, 1)})
	case p.take("<"):
		return p.redirect(c, redirect{fd: 0})
	}
	p.at = start
	w, err := p.word()
	if err != nil {
		return err
	}
	if p.at == start {
		return errSyntax
	}
	if text, ok := w.literal(); ok && len(c.words) == 0 && reserved(text) {
		return errBeyond
	}
	c.words = append(c.words, w)
	return nil
}

func (p *parser) redirect(c *command, r redirect) error {
	p.blank()
	w, err := p.word()
	if err != nil {
		return err
	}
	if len(w) == 0 {
		return errSyntax
	}
	r.file = w
	c.redirects = append(c.redirects, r)
	return nil
}

func reserved(text string) bool {
	switch text {
	case "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "!",
		"set", "trap", "eval", "exec", "source", ".", "export", "unset", "read", "shift", "return", "local":
		return true
	}
	return false
}

// word reads one word with its quotes. It is empty only when a joint follows.
func (p *parser) word() (word, error) {
	var w word
	var text strings.Builder
	flush := func(quoted bool) {
		if text.Len() > 0 || quoted {
			w = append(w, piece{text: text.String(), quoted: quoted})
			text.Reset()
		}
	}
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case strings.IndexByte(" \t\n;&|<>()", c) >= 0:
			flush(false)
			return w, nil
		case c == '`' || c == '*' || c == '?' || c == '[' && text.Len() > 0 || c == '{' || c == '}' || c == '~' && text.Len() == 0:
			return nil, errBeyond
		case c == '\\':
			if p.at+1 == len(p.text) {
				return nil, errSyntax
			}
			flush(false)
			text.WriteByte(p.text[p.at+1])
			flush(true)
			p.at += 2
		case c == '\'':
			flush(false)
			end := strings.IndexByte(p.text[p.at+1:], '\'')
			if end < 0 {
				return nil, errSyntax
			}
			text.WriteString(p.text[p.at+1 : p.at+1+end])
			flush(true)
			p.at += end + 2
		case c == '"':
			flush(false)
			p.at++
			quoted, err := p.quoted()
			if err != nil {
				return nil, err
			}
			w = append(w, quoted...)
		case c == '$':
			flush(false)
			v, err := p.variable(false)
			if err != nil {
				return nil, err
			}
			w = append(w, v)
		default:
			text.WriteByte(c)
			p.at++
		}
	}
	flush(false)
	return w, nil
}

// quoted reads the inside of a double-quoted text, after its opening quote.
func (p *parser) quoted() (word, error) {
	w := word{{quoted: true}}
	var text strings.Builder
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return append(w, piece{text: text.String(), quoted: true}), nil
		case c == '`':
			return nil, errBeyond
		case c == '\\' && p.at+1 < len(p.text) && strings.IndexByte("\"\\$`", p.text[p.at+1]) >= 0:
			text.WriteByte(p.text[p.at+1])
			p.at += 2
		case c == '$':
			w = append(w, piece{text: text.String(), quoted: true})
			text.Reset()
			v, err := p.variable(true)
			if err != nil {
				return nil, err
			}
			w = append(w, v)
		default:
			text.WriteByte(c)
			p.at++
		}
	}
	return nil, errSyntax
}

// variable reads $NAME, ${NAME}, $? or $$; a lone dollar is a text.
func (p *parser) variable(quoted bool) (piece, error) {
	p.at++
	rest := p.rest()
	if strings.HasPrefix(rest, "(") || strings.HasPrefix(rest, "'") {
		return piece{}, errBeyond
	}
	if rest != "" && strings.IndexByte("?$", rest[0]) >= 0 {
		p.at++
		return piece{text: rest[:1], variable: true, quoted: quoted}, nil
	}
	braced := strings.HasPrefix(rest, "{")
	if braced {
		rest = rest[1:]
	}
	n := nameLen(rest)
	if braced {
		if n == 0 || n == len(rest) || rest[n] != '}' {
			return piece{}, errBeyond
		}
		p.at += n + 2
		return piece{text: rest[:n], variable: true, quoted: quoted}, nil
	}
	if n == 0 {
		if rest != "" && strings.IndexByte("0123456789@*#!-", rest[0]) >= 0 {
			return piece{}, errBeyond
		}
		return piece{text: "$", quoted: quoted}, nil
	}
	p.at += n
	return piece{text: rest[:n], variable: true, quoted: quoted}, nil
}

// nameLen is the length of the variable name with which s begins.
func nameLen(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(s)
}
