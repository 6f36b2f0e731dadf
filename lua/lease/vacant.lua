-- What Redis keeps of a lone slot that nobody holds: the text behind the last token, and for how many
-- milliseconds.
local vacant, token_lives = ' 0 0 - 0 1 - - - 1 1', 300000 + margin
