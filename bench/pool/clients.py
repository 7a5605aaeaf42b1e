"""Clients that ask a server all the time and count what is not answered as it should be."""

import http.client
import threading
import time

PATIENCE_S = 60  # for one answer: longer than any queue of the server
PAUSE_S = 0.002  # of each client between two requests, so that the machine has time for others
FAILURES_KEPT = 20


class Clients:
    """`with Clients(port, {"/": (200,)}) as clients: ...`: `each` threads, each with a connection, ask for
    the paths in turns and expect one of the statuses."""

    def __init__(self, port, expected, each=2):
        self.asked, self.failed, self.failures, self.by_status = 0, 0, [], {}
        self._port, self._expected, self._ends = port, expected, threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask_until_end, daemon=True) for _ in range(each)]

    def _ask_until_end(self):
        connection = None
        while not self._ends.is_set():
            for path, statuses in self._expected.items():
                time.sleep(PAUSE_S)
                connection = connection or self._connected()
                try:
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    answer.read()
                    problem = None if answer.status in statuses else f"status {answer.status}"
                    self._note(path, answer.status, problem)
                except (OSError, http.client.HTTPException) as error:
                    self._note(path, None, repr(error))
                    connection.close()
                    connection = None
        if connection:
            connection.close()

    def _connected(self):
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)

    def _note(self, path, status, problem):
        with self._lock:
            self.asked += 1
            self.by_status[status] = self.by_status.get(status, 0) + 1
            if problem is None:
                return
            self.failed += 1
            if len(self.failures) < FAILURES_KEPT:
                self.failures.append(f"{path} at {time.strftime('%H:%M:%S')}: {problem}")

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
