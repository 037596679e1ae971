package terminal

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

// completeMention completes the path of a file named with @ at the end of a
// line: up to the common prefix of all matching images and folders. ok is false if
// there is nothing to add.
func completeMention(typed string) (line string, ok bool) {
	at := strings.LastIndexByte(typed, '@')
	if at < 0 || at > 0 && !isSpace(typed[at-1]) {
		return typed, false
	}
	escapes := runtime.GOOS != "windows"
	word, n := shellWord(typed[at+1:], escapes)
	if n < len(typed)-at-1 || strings.ContainsAny(typed[at+1:], `'"`) { // another word has begun, or it is quoted
		return typed, false
	}
	path, err := load.ExpandHome(word)
	if err != nil {
		return typed, false
	}
	folder, begun := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(folder)) // the working folder of none
	if err != nil {
		return typed, false
	}
	common, found := "", 0
	for _, e := range entries {
		name := e.Name()
		switch {
		case !strings.HasPrefix(name, begun), strings.HasPrefix(name, ".") && begun == "", !e.IsDir() && !isPictureName(name):
			continue
		case console.Printable(name) != name: // it would steer the terminal
			continue
		}
		if e.IsDir() {
			name += string(filepath.Separator)
		}
		if found++; found == 1 {
			common = name
		}
		for !strings.HasPrefix(name, common) {
			common = common[:len(common)-1]
		}
	}
	added := strings.TrimPrefix(strings.ToValidUTF8(common, ""), begun)
	if escapes {
		added = strings.NewReplacer(" ", `\ `, `\`, `\\`, "'", `\'`, `"`, `\"`).Replace(added)
	}
	return typed + added, added != ""
}
