-- SPDX-License-Identifier: MIT
-- wrk's figures, exact and as one line of JSON. Nothing here is called for single requests.
function done(summary, latency, requests)
	local e = summary.errors
	io.write(string.format('{"requests":%d,"bytes":%d,"duration_us":%d,"p50_us":%d,' ..
		'"p99_us":%d,"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,' ..
		'"timeout":%d}}\n', summary.requests, summary.bytes, summary.duration,
		latency:percentile(50), latency:percentile(99), e.connect, e.read, e.write,
		e.status, e.timeout))
end
