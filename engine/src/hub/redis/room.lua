-- The room of a share in Redis: the share's topics of all machines take at most `most` bytes. When they take
-- more, topics that were not used for longest are deleted, and their readers get a reset.
--
-- `room` is a sorted set. Its member for a topic is 'USE COST STEM', with the number of the latest use as
-- score; the names of the topic's keys begin with STEM. Topics up to the use `settled` have the cost of a
-- topic without entries. Members with negative scores are numbers of the share.
local function least(stem) return 1024 + 8 * #stem end

local function whole(number) return string.format('%.0f', number) end

-- Notes the use of a topic at the time `now`. `hub`: the publishing hub, whose latest publications have a key
-- of their own. `cost`: the topic's cost. Without these three, the topic is only read.
local function use_room(room, most, idle, stem, hub, cost, now)
    local head = stem .. 'head'
    local numbers = { uses = 0, total = 0, settled = 0 }
    local scores = redis.call('ZRANGEBYSCORE', room, '-inf', '(0', 'WITHSCORES')
    for at = 1, #scores, 2 do numbers[scores[at]] = -1 - tonumber(scores[at + 1]) end
    local uses, total, settled = numbers.uses, numbers.total, numbers.settled

    local function enter(use, price, other)
        redis.call('HSET', other .. 'head', 'use', use, 'cost', whole(price))
        redis.call('ZADD', room, use, use .. ' ' .. whole(price) .. ' ' .. other)
        total = total + price
    end
    local function leave(use, price)
        redis.call('ZREMRANGEBYSCORE', room, use, use)
        total = total - price
    end
    -- The first topic behind the use `use`, except the topic that is used now.
    local function first(use)
        local behind, before = '(' .. whole(use), '(' .. whole(uses)
        local found = redis.call('ZRANGEBYSCORE', room, behind, before, 'LIMIT', 0, 1)[1]
        if found then return string.match(found, '^(%d+) (%d+) (.*)$') end
    end

    local use, price, hubs = unpack(redis.call('HMGET', head, 'use', 'cost', 'hubs'))
    if use and redis.call('ZSCORE', room, use .. ' ' .. price .. ' ' .. stem) then
        leave(use, price)
        cost = cost or tonumber(price)
    end
    uses = uses + 1
    enter(whole(uses), cost or least(stem), stem)
    hubs = hubs or ''
    if hub and not string.find(hubs, hub, 1, true) then
        -- Hubs get a new name at each start, so the oldest names are those of hubs that have ended.
        hubs = string.sub(hub .. ' ' .. hubs, 1, 100 * (#hub + 1))
    end
    redis.call('HSET', head, 'used', now or 0, 'hubs', hubs)

    -- More steps than the longest entry can make necessary.
    for _ = 1, 2000 do
        if total <= most then break end
        local use, price, other = first(settled)
        if use and redis.call('XLEN', other .. 'stream') == 0 then
            -- The topic's entries have expired.
            leave(use, price)
            settled = tonumber(use)
            if redis.call('HMGET', other .. 'head', 'use')[1] == use then enter(use, least(other), other) end
        else
            use, price, other = first(0)
            if not use then break end
            leave(use, price)
            local known = redis.call('HMGET', other .. 'head', 'use', 'hubs')
            if known[1] == use then
                local gone = { other .. 'head', other .. 'stream' }
                for id in string.gmatch(known[2] or '', '%x+') do gone[#gone + 1] = other .. 'done:' .. id end
                redis.call('DEL', unpack(gone))
            end
        end
    end
    redis.call('ZADD', room, -1 - uses, 'uses', -1 - total, 'total', -1 - settled, 'settled')
    redis.call('PEXPIRE', room, idle)
end

