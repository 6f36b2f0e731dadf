package main

import (
	"io"
	"strings"

	"golang.org/x/term"
)

// screen draws frames on the alternate screen of a terminal, and leaves the terminal as it was.
type screen struct{ out io.Writer }

// Control sequences of ECMA-48 and xterm.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func newScreen(out io.Writer) *screen {
	_, _ = io.WriteString(out, enterScreen)
	return &screen{out}
}

func (s *screen) close() { _, _ = io.WriteString(s.out, leaveScreen) }

// draw draws the lines that frame returns for the size of the terminal.
func (s *screen) draw(frame func(width, height int) []string) error {
	width, height := 80, 24
	if f, ok := fileOf(s.out); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	var b strings.Builder
	b.WriteString(home)
	lines := frame(width, height)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, width))
		b.WriteString(clearLine)
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(s.out, b.String())
	return err
}

// cut returns the beginning of a line that a width has room for.
func cut(line string, width int) string {
	n := 0
	for i := range line {
		if n == width {
			return line[:i]
		}
		n++
	}
	return line
}
