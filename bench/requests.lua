-- Load for wrk: `wrk -s pipeline.lua URL -- DEPTH`. Sends DEPTH requests in one piece, and ends with
-- one line for bench/load.py. At depth 1 wrk's own constant request is used, as no script can be cheaper.

function init(args)
   local depth = tonumber(args[1]) or 1
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
