package main

import (
	"path/filepath"
	"testing"
)

// TestChatAttachesPictures names files with @, with a mistake in one, and as a drag does; the
// images stay in the conversation.
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
	m.say("What do you see?", saysStar, "; prompt 29 tokens")
	m.say("/show", "vision: images up to 16384 pixels, a token for 32×32 of them")
	m.say("/clear")
	m.say("@\""+house+"x\" What do you see?", "; prompt ") // no name of an image
	m.say("/clear")
	m.say("@absent.png What do you see?", "foretoken: open absent.png: no such file or directory")
	m.expect("@absent.png What do you see?") // to be changed
	const keyStart = "\x01"
	m.press(keyStart + "\x1b[C") // behind the @
	for range "absent.png" {
		m.press("\x1b[C" + keyBackspace)
	}
	m.say(house, "attached house-and-heart.png, image, 5.04 kB", saysHouse)
	m.say(star+" What do you see?", "attached star-and-ball.png", "; prompt 70 tokens") // dragged: no command, though it begins with a slash
	m.say("/show", "4 messages so far")
	m.leave(keyEnd)
}

func TestChatWithoutVisionKeepsTheLine(t *testing.T) {
	m := startTerminal(t, "run", "--temp", "0", "--max-tokens", "2", "--nohistory", "--no-vision")
	m.prompted()
	m.say("@"+houseAndHeart+" Hi.", "this model does not accept images: its vision tower was left out")
	m.expect("@" + houseAndHeart + " Hi.")
	m.press(keyInterrupt)
	m.prompted()
	m.say("/show", "0 messages so far", "vision: none")
	m.leave(keyEnd)
}
