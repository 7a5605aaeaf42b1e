-- Load for wrk: `wrk -s requests.lua URL -- DEPTH BODY HEADERS`. Sends DEPTH requests in one piece, each
-- with so many bytes of body (0: a GET), and with the header fields of a browser if HEADERS is "browser".
-- Ends with one line for bench/wrk.py. wrk repeats a request that was made once by itself, as no script can
-- be cheaper.

-- What a browser sends with a script's request: 15 fields, Host among them.
local browser = {
   ["Accept"] = "application/json, text/plain, */*",
   ["Accept-Encoding"] = "gzip, deflate, br, zstd",
   ["Accept-Language"] = "en-GB,en;q=0.9,de;q=0.8",
   ["Cache-Control"] = "no-cache",
   ["Cookie"] = "session=8f14e45fceea167a5a36dedd4bea2543; theme=dark; consent=1",
   ["Pragma"] = "no-cache",
   ["Referer"] = "https://www.example.com/dashboard?tab=overview",
   ["Sec-Ch-Ua"] = '"Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"',
   ["Sec-Ch-Ua-Mobile"] = "?0",
   ["Sec-Ch-Ua-Platform"] = '"Linux"',
   ["Sec-Fetch-Dest"] = "empty",
   ["Sec-Fetch-Mode"] = "cors",
   ["Sec-Fetch-Site"] = "same-origin",
   ["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
      .. "Chrome/140.0.0.0 Safari/537.36",
}

function init(args)
   local depth, bytes = tonumber(args[1]), tonumber(args[2])
   if args[3] == "browser" then
      for name, value in pairs(browser) do wrk.headers[name] = value end
   end
   if bytes > 0 then
      wrk.method = "POST"
      wrk.body = string.rep("x", bytes)
   end
   if depth == 1 then return end
   local batch = string.rep(wrk.format(), depth)
   request = function() return batch end
end

function done(summary, latency, _)
   local errors = summary.errors
   io.write(string.format(
      "RESULT requests=%d duration_us=%d p50_us=%d p99_us=%d status=%d socket=%d timeout=%d\n",
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
      errors.connect + errors.read + errors.write, errors.timeout))
end
