-- ARGV: class, consumer, agent's name, its nonce.
return lease(ARGV[2], ARGV[3], ARGV[4], ARGV[5])
