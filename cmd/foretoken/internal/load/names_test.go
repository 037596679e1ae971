package load

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

func TestHubFoldersComeFromTheEnvironment(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		environment map[string]string
		cache       string
	}{
		{map[string]string{}, home + "/.cache/huggingface/hub"},
		{map[string]string{"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"},
		{map[string]string{"XDG_CACHE_HOME": "/x", "HF_HOME": "~/h"}, home + "/h/hub"},
		{map[string]string{"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"},
		{map[string]string{"HF_HUB_CACHE": "/c", "HUGGINGFACE_HUB_CACHE": "/old"}, "/c"},
		{map[string]string{"HF_HUB_CACHE": "~user/c"}, "~user/c"},
	} {
		emptyEnvironment(t)
		t.Setenv("HOME", home)
		for name, value := range c.environment {
			t.Setenv(name, value)
		}
		if cache, err := HubCache(); err != nil || filepath.ToSlash(string(cache)) != filepath.ToSlash(c.cache) {
			t.Errorf("%v: %s, %v, want %s", c.environment, cache, err, c.cache)
		}
	}
}

func TestHubTokenComesFromTheEnvironmentOrAFile(t *testing.T) {
	emptyEnvironment(t)
	if token, err := hubToken(); token != "" || err != nil {
		t.Errorf("nothing is set: %q, %v", token, err)
	}
	home := t.TempDir()
	t.Setenv("HF_HOME", home)
	filetest.Write(t, filepath.Join(home, "token"), "hf_file\n")
	if token, err := hubToken(); token != "hf_file" || err != nil {
		t.Errorf("a file: %q, %v", token, err)
	}
	t.Setenv("HF_TOKEN_PATH", home)
	if _, err := hubToken(); err == nil {
		t.Error("a folder in place of the file is no error")
	}
	t.Setenv("HF_TOKEN", " hf_variable ")
	if token, err := hubToken(); token != "hf_variable" || err != nil {
		t.Errorf("a variable: %q, %v", token, err)
	}
}

// emptyEnvironment makes the environment that of a user without any setting of the hub.
func emptyEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"HF_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

func TestIdentityNeedsAFolder(t *testing.T) {
	if _, err := Identity(""); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("%v", err)
	}
}
