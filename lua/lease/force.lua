for i = 2, #ARGV do
  reply[i - 1] = evict(ARGV[i])
end
promote_dropped()
