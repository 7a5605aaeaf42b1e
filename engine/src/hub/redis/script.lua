-- Publishes an entry once: checks whether this hub has published it before, gives it the next position of its
-- topic, keeps it, and publishes it to all hubs. KEYS: the topic's stream, its head, and the latest
-- publications of this hub. The key of the share's room is an argument (`room`; there is none for the share
-- without a prefix), because it has another slot, which only a cluster of one master serves, too.
local stream, head, done = KEYS[1], KEYS[2], KEYS[3]
local hub, sequence, floor, epoch, now, bytes, channel = unpack(ARGV, 1, 7)
local entries_max, bytes_max, age_max, idle, previous, most, room = unpack(ARGV, 8, 14)

-- The publication was on its way when its hub gave it up.
local given_up = redis.call('ZSCORE', done, 'floor')
if given_up and tonumber(sequence) < tonumber(given_up) then return {'late'} end
local function place_of(number)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', done, number, number)) do
        if member ~= 'floor' then return string.sub(member, #number + 2) end
    end
end
local place = place_of(sequence)
if place then return {'repeated', place} end
-- The publication before it was on its way when this one was sent, and failed: the hub sends both again.
if previous ~= '0' and not place_of(previous) then return {'early'} end

local known = redis.call('HMGET', head, 'epoch', 'offset', 'check', 'bytes', 'cost', 'used', 'hubs')
local offset, check = tonumber(known[2] or 0), known[3] or '000000000000'
local total = tonumber(known[4] or 0) + #bytes
if known[1] then
    epoch = known[1]
elseif redis.call('XLEN', stream) > 0 then
    -- Behind a command that writes, Redis refuses no command because its memory is full.
    redis.call('DEL', stream)
end
offset = string.format('%.0f', offset + 1)
check = string.sub(redis.sha1hex(check .. '.' .. hub .. '.' .. sequence), 1, 12)
local position = epoch .. '.' .. offset .. '.' .. check

-- This command needs memory, and is the first one that writes, because Redis refuses none behind it.
redis.call('XADD', stream, offset .. '-0', 'c', check, 'h', hub, 's', sequence, 't', now, 'd', bytes)
redis.call('ZADD', done, sequence, sequence .. ' ' .. position, floor, 'floor')
redis.call('ZREMRANGEBYSCORE', done, '-inf', '(' .. floor)
redis.call('PEXPIRE', done, idle)

local count = redis.call('XLEN', stream)
for _ = 1, 100 do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if not oldest or oldest[1] == offset .. '-0' then break end
    local fields = oldest[2]
    local is_over = count > tonumber(entries_max) or total > tonumber(bytes_max)
        or tonumber(now) - tonumber(fields[8]) > tonumber(age_max)
    if not is_over then break end
    redis.call('XDEL', stream, oldest[1])
    count = count - 1
    total = total - #fields[10]
end
redis.call('HSET', head, 'epoch', epoch, 'offset', offset, 'check', check, 'bytes', total)
redis.call('PEXPIRE', head, idle)
redis.call('PEXPIRE', stream, age_max)
if room then
    local stem = string.sub(stream, 1, -#'stream' - 1)
    -- An empty stream takes 4,096 bytes.
    local cost = least(stem) + 4096 + total + 128 * count
    local step = 512
    while 16 * step < cost do step = 2 * step end
    cost = step * math.ceil(cost / step)
    -- A topic with many publications a second is noted as used once a second.
    local is_used = known[6] and math.abs(now - known[6]) < 1000 and cost <= tonumber(known[5])
        and string.find(known[7], hub, 1, true)
    if not is_used then use_room(room, tonumber(most), idle, stem, hub, cost, now) end
end
redis.call('PUBLISH', channel, table.concat({ epoch, offset, check, hub, sequence, bytes }, ' '))
return {'added', position}
