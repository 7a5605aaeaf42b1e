-- Sets a topic's epoch if it has none, and keeps the topic for another `idle` ms. KEYS: the topic's head.
local epoch, idle, most, room = unpack(ARGV)
redis.call('HSETNX', KEYS[1], 'epoch', epoch)
redis.call('PEXPIRE', KEYS[1], idle)
use_room(room, tonumber(most), idle, string.sub(KEYS[1], 1, -#'head' - 1))
return 1
