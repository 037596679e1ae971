package main

import (
	"path/filepath"
	"testing"
)

// TestChatAttachesPictures names files with @, with a mistake in one, and as a drag does; the
// pictures stay in the conversation.
func TestChatAttachesPictures(t *testing.T) {
	house, err := filepath.Abs(houseAndHeart)
	if err != nil {
		t.Fatal(err)
	}
	star := filepath.Join(filepath.Dir(house), filepath.Base(starAndBall))
	m := startTerminal(t, "run", "--temp", "0", "--max-tokens", "16", "--nohistory", "--image", star)
	m.expect("attached star-and-ball.png, image, 3.49 kB")
	m.prompted()
	m.press("@" + houseAndHeart[:len(houseAndHeart)-6] + "\t")
	m.expect(filepath.Base(house)) // completed
	m.press(keyInterrupt)
	m.prompted()
	m.press("What do you see?" + keyEnter)
	m.expect(saysStar)
	m.expect("; prompt 29 tokens")
	m.prompted()
	m.press("/show" + keyEnter)
	m.expect("vision: images up to 16384 pixels, a token for 32×32 of them")
	m.prompted()
	m.press("/clear" + keyEnter)
	m.prompted()
	m.press("@\"" + house + "x\" What do you see?" + keyEnter) // no name of a picture
	m.expect("; prompt ")
	m.prompted()
	m.press("/clear" + keyEnter)
	m.prompted()
	m.press("@absent.png What do you see?" + keyEnter)
	m.expect("foretoken: open absent.png: no such file or directory")
	m.prompted()
	m.expect("@absent.png What do you see?") // to be changed
	const keyStart = "\x01"
	m.press(keyStart + "\x1b[C") // behind the @
	for range "absent.png" {
		m.press("\x1b[C" + keyBackspace)
	}
	m.press(house + keyEnter)
	m.expect("attached house-and-heart.png, image, 5.04 kB")
	m.expect(saysHouse)
	m.prompted()
	m.press(star + " What do you see?" + keyEnter) // dragged: no command, though it begins with a slash
	m.expect("attached star-and-ball.png")
	m.expect("; prompt 70 tokens") // both pictures among them
	m.prompted()
	m.press("/show" + keyEnter)
	m.expect("4 messages so far")
	m.prompted()
	m.press(keyEnd)
	if code := m.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestChatWithoutVisionKeepsTheLine(t *testing.T) {
	m := startTerminal(t, "run", "--temp", "0", "--max-tokens", "2", "--nohistory", "--no-vision")
	m.prompted()
	m.press("@" + houseAndHeart + " Hi." + keyEnter)
	m.expect("this model does not accept images: its vision tower was left out")
	m.prompted()
	m.expect("@" + houseAndHeart + " Hi.")
	m.press(keyInterrupt)
	m.prompted()
	m.press("/show" + keyEnter)
	m.expect("0 messages so far")
	m.expect("vision: none")
	m.prompted()
	m.press(keyEnd)
	if code := m.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
