# The counter in a container that holds nothing else. In the folder engine:
#
#     zig build -Dtarget=x86_64-linux-musl       (or aarch64-linux-musl)
#     docker build -t counter . -f example/counter.Dockerfile
#     docker run -p 3000:3000 counter
FROM scratch
COPY zig-out/bin/counter /counter
EXPOSE 3000
ENTRYPOINT ["/counter"]
