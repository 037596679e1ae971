package main

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/terminal"
	"github.com/foretoken/foretoken/internal/filetest"
)

// banned are words that this project once had instead of the field's, with what to say.
var banned = []struct{ pattern, say string }{
	{`guess(es|ed|ing)?`, "draft token, to draft, speculative decoding"},
	{`held`, "accepted, constrained, kept"},
	{`(take|takes|taken|taking) back`, "roll back"},
	{`to a form|keeps? (a|the) text in a form|forms an answer`, "grammar, constrained decoding, structured output"},
	{`beginnings|(same|cached) beginning|beginnings? of (a |the )?texts?`, "prefix"},
	{`put aside|anew|nudge[ds]?`, "preempted, restarted, again"},
	{`in (any )?company`, "in a batch"},
	{`memory of (a |the )?(sequences?|texts?|head|drafter)|(head|drafter)'s memory`, "KV cache, draft state"},
	{`read(s|ing)? (a |the |its )?prompts?|prompts? (is|are|was) read|heads? learns?|learning (the text|tokens)`, "prefill; the drafter catches up"},
	{`backbone|trunk`, "model"},
	{`in turns|(timed|same|each|every) turns?`, "alternating; repetition"},
	{`shelf|rooms?|lucky|calm`, "loaded models, packages, free space"},
	{`tastes?|shortlists?`, "sampling options, draft vocabulary"},
	{`as (many|deep) as pays?|any number|so many|most (bytes|connections|milliseconds|requests that)`, "auto (fastest), unlimited, maximum; name the parameter"},
	{`the laws?|receipts?`, "invariant; speculation stats"},
	{`(no|some|any|every)body|whoever`, "the client, the server, another request: programs are not people"},
	{`what (came|comes|becomes) of (it|them)`, "result, effect"},
}

// allowed are phrases in which such a word means nothing private.
var allowed = []string{"any number of threads", "any number of rows"}

// privateWords finds the banned words of a text, each with what to say.
func privateWords(text string) (found []string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, phrase := range allowed {
		text = regexp.MustCompile(`(?i)`+phrase).ReplaceAllString(text, "")
	}
	for _, b := range banned {
		for _, at := range regexp.MustCompile(`(?i)\b(`+b.pattern+`)\b`).FindAllStringIndex(text, -1) {
			found = append(found, fmt.Sprintf("…%s…: say %s", text[max(0, at[0]-30):min(len(text), at[1]+30)], b.say))
		}
	}
	return found
}

func TestPagesUseTheWordsOfTheField(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	code := regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\]\\([^)]*\\)") // and addresses of links
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md") {
		text := filetest.Read(t, page)
		for _, found := range privateWords(code.ReplaceAllString(string(text), " ")) {
			t.Errorf("%s: %s", filepath.Base(page), found)
		}
	}
}

func TestHelpUsesTheWordsOfTheField(t *testing.T) {
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		var help strings.Builder
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for _, found := range privateWords(help.String()) {
			t.Errorf("%s --help: %s", c.CommandPath(), found)
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRootCommand())
	for _, found := range privateWords(terminal.ChatHelp) {
		t.Errorf("/help: %s", found)
	}
}

// bannedInMessages are words that errors and log lines have no use for, in addition to most of banned.
var bannedInMessages = []struct{ pattern, say string }{
	{`(no|some|any|every)body|whoever`, "the client, the server, another request: programs are not people"},
	{`what (came|comes|becomes) of (it|them)`, "result, effect"},
	{`is no (key|prefix|size|record|folder|hint|number|GGUF|part)|is none of`, "is not a valid key, does not belong to"},
	{`(is|are) not (read|known|run) here|which is not read|at most %d are read`, "is not supported, want at most"},
	{`exclude each other|leaves out the`, "cannot be combined"},
	{`sends? us|of ours|we do not know`, "name the component"},
	{`pictures?`, "image"},
	{`guess(es|ed|ing)?|anew|nudge[ds]?|put aside|shelf|lucky|tastes?|backbone|in company`, "the field's word"},
}

// bannedInComments are phrases for which a comment has a noun, with what to say. They are not patterns: the comments are
// a million characters.
var bannedInComments = map[string]string{
	"nobody": "the component", "somebody": "the component", "anybody": "the component", "everybody": "the component",
	"whoever": "the component", "whomever": "the component", "those who ": "the component", "so many": "the parameter",
	"what came of": "the result", "what comes of": "the result", "what becomes of": "the result", "in turns": "alternating",
}

// notMessages are folders whose strings are not messages to users: an interpreter for tests, templates
// with the words of Python, stories and test data.
var notMessages = regexp.MustCompile(`^(internal/jinja|internal/golden|examples|tools|.*/_gen|.*/testdata|.*test)(/|$)`)

func TestMessagesUseTheWordsOfTheField(t *testing.T) {
	words := make([]*regexp.Regexp, len(bannedInMessages))
	for i, b := range bannedInMessages {
		words[i] = regexp.MustCompile(`(?i)\b(` + b.pattern + `)\b`)
	}
	count := 0
	for path, text := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "prose.go") || notMessages.MatchString(path) {
			continue
		}
		for line, message := range messages(text) {
			count++
			for i, b := range bannedInMessages {
				if found := words[i].FindString(message); found != "" {
					t.Errorf("%s:%d: %q in %q: say %s", path, line, found, message, b.say)
				}
			}
		}
	}
	if count < 2000 {
		t.Errorf("%d messages", count)
	}
}

func TestCommentsUseTheWordsOfTheField(t *testing.T) {
	count := 0
	for path, text := range files(t, ".go", ".js", ".mjs", ".cu", ".cuh") {
		for line, comment := range comments(text) {
			count++
			for phrase, say := range bannedInComments {
				if strings.Contains(comment, " "+phrase) {
					t.Errorf("%s:%d: %q in a comment: say %s", path, line, phrase, say)
				}
			}
		}
	}
	if count < 10000 {
		t.Errorf("%d comments", count)
	}
}

// files are the files of the repository with one of the extensions, by their paths. Hidden folders and installed
// packages are left out.
func files(t *testing.T, extensions ...string) iter.Seq2[string, []byte] {
	t.Helper()
	return func(yield func(string, []byte) bool) {
		root := os.DirFS("../..")
		err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != "." && (d.Name()[0] == '.' || d.Name() == "node_modules"):
				return fs.SkipDir
			case d.IsDir() || !slices.Contains(extensions, filepath.Ext(path)):
				return nil
			}
			text, err := fs.ReadFile(root, path)
			if err == nil && !yield(path, text) {
				return fs.SkipAll
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// comments are the comments of a file by their last lines, each as one line of small letters with a space before each word.
func comments(text []byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		var comment strings.Builder
		number := 0
		for line := range bytes.Lines(text) {
			before, after, found := bytes.Cut(bytes.ReplaceAll(line, []byte("//\t"), []byte("// ")), []byte("// "))
			alone := len(bytes.TrimSpace(before)) == 0
			if comment.Len() > 0 && (!found || !alone) {
				if !yield(number, comment.String()) {
					return
				}
				comment.Reset()
			}
			if number++; found {
				comment.WriteByte(' ')
				comment.Write(bytes.ToLower(bytes.TrimSpace(after)))
			}
		}
		if comment.Len() > 0 {
			yield(number, comment.String())
		}
	}
}

// messages are the string literals of a file that have a space, by their lines.
func messages(text []byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		set := token.NewFileSet()
		file := set.AddFile("", -1, len(text))
		var s scanner.Scanner
		s.Init(file, text, nil, 0)
		for {
			at, kind, literal := s.Scan()
			if kind == token.EOF {
				return
			}
			if kind != token.STRING || !strings.Contains(literal, " ") {
				continue
			}
			if message, err := strconv.Unquote(literal); err == nil && !yield(file.Line(at), message) {
				return
			}
		}
	}
}

func TestMessagesAreFound(t *testing.T) {
	const source = "package a\n\nimport \"fmt\"\n\nvar x = \"one word\" // a \"comment here\"\nvar y = `two\n words` + \"three\"\n"
	got := fmt.Sprint(maps.Collect(messages([]byte(source))))
	if want := "map[5:one word 6:two\n words]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCommentsAreFound(t *testing.T) {
	source := strings.ReplaceAll("## One,\n##\tso\n\t## Many\nx := 1 ## two\ny := \"http:##a\"\n\n\t## three", "##", "//")
	got := fmt.Sprint(maps.Collect(comments([]byte(source))))
	if want := "map[3: one, so many 4: two 7: three]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPrivateWordsAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"A guess, HELD to\na form": 3, "taken\nback": 1, "as many as pay": 1, "any number of requests": 1,
		"Nobody waits, whoever\nasked": 2, "what came of\nit": 1, "an antibody": 0,
		"any number of threads": 0, "upheld, guesswork, household": 0, "a draft token": 0,
	} {
		if got := privateWords(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
