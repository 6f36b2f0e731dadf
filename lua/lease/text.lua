-- text prints a time, a token or a ticket. ".." rounds to 14 digits, and %.0f takes twice as long as
-- %d, whose argument may have 32 bits.
local function text(number)
  local low = number % 10000000
  return string.format('%d%07d', (number - low) / 10000000, low)
end
