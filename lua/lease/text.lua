local call = redis.call

-- text prints a time, a token or a ticket. ".." rounds to 14 digits, and %.0f takes twice as long as
-- %d, whose argument may have 32 bits.
local function text(number)
  local low = number % 10000000
  return string.format('%d%07d', (number - low) / 10000000, low)
end

-- For how many milliseconds Redis keeps the last token of a scope that nobody uses, and the text
-- behind it; see lua/lease/lone.lua.
local token_lives, vacant = 300000 + margin, ' 0 0 - 0 1 - - - 1 1'
