package doctor

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/picture"
)

// ImageTest is the result for two images with known content.
type ImageTest struct {
	Tokens  int     `json:"tokens"`  // of each image
	Seconds float64 `json:"seconds"` // of the tower for each
	Finite  bool    `json:"finite"`  // all rows are numbers
	// Scale is the root mean square of the images' rows as a multiple of that of embedded tokens;
	// 0: not measured.
	Scale float64 `json:"scale"`
	// Apart is by how much the sentences about the images are likelier with the right image
	// than with the other, in nats: near 0 if the vision tower does not work.
	Apart float64 `json:"told_apart"`
}

// Limits of a sound tower.
const (
	apartNats  = 1    // distinguished, and not by chance
	oddScale   = 1e3  // times more or less than embedded tokens: no sound tower of the family is that far off
	sampleRows = 1024 // of the embedding, for its scale
)

// sentences describe the images that scene draws.
var sentences = [2]string{"There is a red ball.", "There is a blue box."}

// scene is a red ball or a blue box on a light ground.
func scene(box bool) *picture.Image {
	const side = 128
	m := &picture.Image{Width: side, Height: side, Pix: make([]byte, 0, 3*side*side)}
	for y := range side {
		for x := range side {
			dx, dy := x-side/2, y-side/2
			color := []byte{225, 225, 225}
			switch {
			case box && max(dx, -dx, dy, -dy) < 36:
				color = []byte{40, 70, 220}
			case !box && dx*dx+dy*dy < 38*38:
				color = []byte{215, 35, 35}
			}
			m.Pix = append(m.Pix, color...)
		}
	}
	return m
}

// MeasureText computes the scale of embedded tokens, which Examine compares with that of images. c
// is the checkpoint that was inspected.
func (f *Facts) MeasureText(c *checkpoint.Checkpoint) error {
	if f.Pictures == nil {
		return nil
	}
	v, err := model.Inventory(c, weights.WithoutHead, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(v.Weights, func(w weights.Weight) bool { return w.Name == "embed_tokens.weight" })
	if i < 0 {
		return nil
	}
	ms, err := v.Weights[i].Matrices()
	if err != nil {
		return err
	}
	row, sum := make([]float32, ms[0].Cols), 0.0
	n := min(sampleRows, ms[0].Rows)
	for r := range n {
		ms[0].Row(row, r*(ms[0].Rows/n))
		sum += square(row)
	}
	f.textScale = math.Sqrt(sum / float64(n*len(row)))
	return nil
}

// square is the sum of the squares.
func square(row []float32) (sum float64) {
	for _, x := range row {
		sum += float64(x) * float64(x)
	}
	return sum
}

// testImages feeds two images to the model, and compares the likelihood of sentences about each.
func (e *examination) testImages() error {
	s, ok := e.m.(model.Multimodal)
	if !ok || e.Pictures == nil || e.template == nil || !e.Template.Pictures {
		return nil
	}
	tower, err := s.Tower()
	if tower == nil || err != nil {
		return err
	}
	e.o.Progress("encoding images")
	var views [2]*picture.Patches
	for i := range views {
		if views[i], err = e.Pictures.config.Prepare(scene(i == 1), 1); err != nil {
			return err
		}
	}
	pass, err := tower.Begin(views[:])
	if err != nil {
		return err
	}
	defer pass.Close()
	start := time.Now()
	for done := false; !done; {
		if done, err = pass.Step(); err == nil {
			err = e.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	e.Images = &ImageTest{Tokens: views[0].Tokens(), Seconds: time.Since(start).Seconds() / 2, Finite: true}
	sum := 0.0
	var rows [2]backend.Tensor
	for i := range rows {
		rows[i] = pass.Take(i)
		defer e.b.Free(rows[i])
		x, err := e.b.Host(rows[i])
		if err != nil {
			return err
		}
		sum += square(x) / float64(2*len(x))
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		e.Images.Finite = false
		return nil
	}
	if e.textScale > 0 {
		e.Images.Scale = math.Sqrt(sum) / e.textScale
	}
	for shown := range rows {
		for said := range sentences {
			p, err := e.believes(views[shown], rows[shown], sentences[said])
			if err != nil {
				return err
			}
			if shown != said {
				p = -p
			}
			e.Images.Apart += p
		}
	}
	return nil
}

// believes is the log-probability of an answer about an image.
func (e *examination) believes(view *picture.Patches, rows backend.Tensor, answer string) (float64, error) {
	content := chat.Parts(chat.Part{Media: &chat.Media{}}, chat.Part{Text: "What do you see?"})
	prompt, err := e.template.Render(dialogue.Input{Messages: []chat.Message{{Role: "user", Content: content}}, AddGenerationPrompt: true})
	if err != nil {
		return 0, err
	}
	before, after, _ := strings.Cut(prompt.Text, e.family.Dialogue.Pictures.Image)
	ids, told := e.tok.Encode(before), e.tok.Encode(answer)
	at := len(ids)
	ids = append(ids, slices.Repeat([]int32{model.NoToken}, view.Tokens())...)
	ids = slices.Concat(ids, e.tok.Encode(after), told)
	positions := make([][3]int32, 0, len(ids))
	height, width := int32(view.Grid.Height/e.Pictures.config.Merge), int32(view.Grid.Width/e.Pictures.config.Merge)
	next := int32(0)
	for i := range ids {
		if j := int32(i - at); i < at || i >= at+view.Tokens() {
			positions = append(positions, [3]int32{next, next, next})
			next++
		} else {
			positions = append(positions, [3]int32{next, next + j/width, next + j%width})
			if i == at+view.Tokens()-1 {
				next += max(height, width)
			}
		}
	}
	s, err := e.pool.Open(e.m.Layout())
	if err != nil {
		return 0, err
	}
	defer s.Close()
	out, err := e.forward([]model.Span{{
		State: s, Tokens: ids, Want: len(told) + 1, Inputs: []backend.Input{{At: at, Rows: rows}}, Positions: positions,
	}})
	if err != nil {
		return 0, err
	}
	logits, err := out.Rows()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for i, id := range told {
		if int(id) >= e.vocab {
			return 0, errors.New("doctor: " + otherTokenizer)
		}
		sum += logProb(logits[i][:e.vocab], id)
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return 0, measure.ErrNotANumber
	}
	return sum, nil
}

// judgeImages judges the vision tower.
func (r *Report) judgeImages() {
	s := r.Images
	if s == nil {
		return
	}
	const remedy = "fetch the original and convert it again: foretoken convert --model ORIGINAL --out DIR"
	switch {
	case !s.Finite:
		r.find(remedy, "The output of the vision tower is not finite: its weights are damaged.")
	case s.Scale > oddScale || s.Scale != 0 && s.Scale < 1/oddScale:
		r.find(remedy, "The output of the vision tower is %.3g times as large as embedded text: its weights are damaged or belong to another model.", s.Scale)
	case !(s.Apart > apartNats):
		r.find(remedy, "The model cannot tell an image of a red ball from one of a blue box: its vision tower is untrained, was damaged by a conversion, or belongs to another model.")
	}
}

// String describes the result, for people.
func (s *ImageTest) String() string {
	if !s.Finite {
		return "the output of the vision tower is not finite"
	}
	text := fmt.Sprintf("%s for an image of %s", secondsText(s.Seconds), counted(s.Tokens, "token", "tokens"))
	if s.Scale > 0 {
		text += fmt.Sprintf(", rows of %.2g times the scale of embedded text", s.Scale)
	}
	if s.Apart > apartNats {
		return text + fmt.Sprintf("; a red ball and a blue box are told apart, by %.1f nats", s.Apart)
	}
	return text + fmt.Sprintf("; a red ball and a blue box are not told apart (%.1f nats)", s.Apart)
}
