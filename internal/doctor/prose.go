package doctor

// prose is the text for perplexity: of several kinds, and no model was trained on it.
const prose = `The old lighthouse stood at the end of a long pier, and nobody had climbed its stairs for years. Every
evening Anna walked past it on her way home from the harbour. One day in autumn she saw a light behind the highest
window. At first she thought it was the sun, but the sun had already gone down behind the hills. She stopped, counted
to ten, and looked again. The light was still there, small and yellow, and it moved slowly from left to right.

"Hello?" she called. "Is somebody up there?" There was no answer, only the wind and the sound of the waves. She pushed
the heavy door, and to her surprise it opened. Inside it was dark and smelled of salt and old wood. She put her hand on
the cold rail and began to climb. After a hundred steps she could hear someone singing.

User: What is the difference between a lake and a pond?
Assistant: A lake is larger and deeper than a pond. Sunlight reaches the bottom of most ponds, so plants can grow all
over them, while the middle of a lake is often too dark for plants.

func sum(numbers []int) int {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return total
}

A farmer has 12 hens. Each hen lays 5 eggs a week. He sells the eggs in boxes of 6. In one week the hens lay 12 * 5 = 60
eggs, so he can fill 60 / 6 = 10 boxes.
`

// prompts are continued by a model, so that its head is measured on the model's own text.
var prompts = []string{
	"Once upon a time there was a little girl named Mia who lived near the sea. One day she",
	"Tom and his dog went to the park to play. The dog saw a big red ball and",
	"User: I would like to book a table for two people tonight.\nAssistant:",
	"User: Can you tell me what the weather will be like tomorrow?\nAssistant:",
	"A volcano is a mountain that",
	"Question: A baker made 24 cakes and sold 15 of them. How many cakes are left?\nAnswer:",
	"// Max returns the larger of two numbers.\nfunc Max(a, b int) int {\n",
	"package main\n\nimport (\n\t\"fmt\"\n)\n\nfunc main() {\n",
}
