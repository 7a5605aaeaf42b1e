"""The figures of an article about stress-testing an asynchronous Perl server, as checks that can fail:
script/bench-article."""
