// The buttons of the examples: each asks its example, and shows the answer.
'use strict';

const button = document.getElementById('try');
const result = document.getElementById('result');
const run = button.dataset.run;

function show(line) {
    result.textContent += line + '\n';
}

async function text(path, options) {
    return (await fetch(run + path, options)).text();
}

function socket(path) {
    return new WebSocket(location.origin.replace(/^http/, 'ws') + run + path);
}

// Resolves with what `settle` is given, fails when the stream or the socket does.
function follow(source, listen) {
    return new Promise((resolve, reject) => {
        source.onerror = () => reject(new Error('the connection was lost'));
        listen(resolve);
    }).finally(() => source.close());
}

const examples = {
    async mojolicious() {
        show(await text('/later'));
        show((await text('/count')).trim());
        const open = socket('/shout');
        await follow(open, resolve => {
            open.onopen = () => open.send('hello');
            open.onmessage = event => { show(event.data); resolve(); };
        });
    },

    async hello() {
        show(await text('/'));
        show(await text('/json'));
        show(await text('/greet/World'));
    },

    async echo() {
        const body = 'one line\n'.repeat(20000);
        const answer = await text('/', { method: 'POST', body });
        show(`${body.length} bytes sent, ${answer.length} came back, ` +
            (answer === body ? 'the same' : 'others'));
    },

    async streaming() {
        const reader = (await fetch(run + '/')).body.pipeThrough(new TextDecoderStream()).getReader();
        for (const begun = performance.now();;) {
            const { value, done } = await reader.read();
            if (done) return;
            show(`${Math.round(performance.now() - begun)} ms: ${value.trim()}`);
        }
    },

    'sse-ticker'() {
        const source = new EventSource(run + '/ticks');
        let ticks = 0;
        return follow(source, resolve => {
            source.addEventListener('hello', event => show(event.data));
            source.addEventListener('tick', event => {
                show(`tick ${event.lastEventId}: ${event.data}`);
                if (++ticks === 5) resolve();
            });
        });
    },

    'websocket-echo'() {
        const messages = ['hello', 'gr\u00fc\u00dfe', '\u{1f426}'];
        const open = socket('/');
        return follow(open, resolve => {
            open.onopen = () => messages.forEach(message => open.send(message));
            open.onmessage = event => {
                show(`came back: ${event.data}`);
                if (event.data === messages.at(-1)) resolve();
            };
        });
    },

    chat() {
        const name = 'guest' + Math.floor(Math.random() * 1000);
        const open = socket('/?name=' + name);
        return follow(open, resolve => {
            open.onopen = () => open.send('hello, everybody');
            open.onmessage = event => {
                const message = JSON.parse(event.data);
                show(`${message.name}: ${message.text}`);
                if (message.name === name) resolve();
            };
        });
    },

    rooms() {
        const name = 'guest' + Math.floor(Math.random() * 1000);
        const two = [socket('/rooms/try?name=' + name), socket('/rooms/try?name=other')];
        return follow(two[0], resolve => {
            two[1].onmessage = () => { two[1].onmessage = null; two[1].send('hello, ' + name); };
            two[0].onmessage = event => {
                const message = JSON.parse(event.data);
                show(`${message.name} ${message.text}`);
                if (message.text === 'hello, ' + name) resolve();
            };
        }).finally(() => two[1].close());
    },

    // The notice is posted before the stream is there, which begins where the page was made.
    async board() {
        const since = (await text('/')).match(/since=([0-9a-f.]+)/)[1];
        const notice = 'notice ' + Math.floor(Math.random() * 1000);
        await text('/', { method: 'POST', body: notice });
        const source = new EventSource(run + '/?since=' + since);
        await follow(source, resolve => {
            source.onmessage = event => { show(event.data); if (event.data === notice) resolve(); };
        });
    },

    // The stream is the same all the time; its browser connects anew when the process has ended.
    async restart() {
        const since = (await text('/')).match(/since=([0-9a-f.]+)/)[1];
        const source = new EventSource(run + '/?since=' + since);
        let last = Number(since.split('.')[1]), news = [], told = () => {};
        source.onmessage = event => {
            const number = Number(event.lastEventId.split('.')[1]);
            news.push(number === last + 1 ? event.data : 'something was missed');
            last = number;
            told();
        };
        const say = async path => {
            while (!await fetch(run + path, { method: 'POST' }).then(answer => answer.ok, () => false)) {
                await new Promise(resolve => setTimeout(resolve, 100));
            }
        };
        const heard = async () => {
            while (!news.length) await new Promise(resolve => { told = resolve; });
            show(news.shift());
        };
        await say('/');
        await heard();
        await say('/restart');
        await heard();
        await new Promise(resolve => setTimeout(resolve, 500));
        await say('/');
        await heard();
        source.close();
    },

    async jobs() {
        const job = await (await fetch(run + '/jobs', { method: 'POST' })).json();
        show(`job ${job.number} has started`);
        const source = new EventSource(`${run}/jobs/${job.number}`);
        await follow(source, resolve => {
            source.addEventListener('running', event => show(`${JSON.parse(event.data).percent} %`));
            source.addEventListener('done', () => { show('done'); resolve(); });
            source.addEventListener('failed', () => { show('failed'); resolve(); });
        });
    },

    async lifespan() {
        show((await text('/')).trim());
        show((await text('/')).trim());
    },

    async backpressure() {
        const answer = await text('/conflate');
        show(`${(answer.length / 1e6).toFixed(1)} MB came; the last line: ${answer.trim().split('\n').at(-1)}`);
    },

    async static() {
        const story = await fetch(run + '/site/story.txt');
        const { length } = await story.text();
        show(`story.txt: ${length} characters, sent as ${story.headers.get('content-length')} bytes of ` +
            (story.headers.get('content-encoding') ?? 'text'));
        const ask = (path, headers = {}) => fetch(run + path, { headers, cache: 'no-store' });
        const again = await ask('/site/story.txt', { 'if-none-match': story.headers.get('etag') });
        show(`with its tag: ${again.status}`);
        const start = await ask('/site/story.txt', { range: 'bytes=0-23' });
        show(`bytes 0-23: ${start.status} ${await start.text()}`);
        const ends = await ask('/files/story.txt', { range: 'bytes=0-23,-6' });
        show(`two ranges: ${ends.status} ${ends.headers.get('content-type').split(';')[0]}`);
        const list = await (await ask('/files/stars/', { accept: 'application/json' })).json();
        show(`a listing: ${list.map(entry => entry.name).join(', ')}`);
        show(`out of the folder: ${(await ask('/site/..%2Fserver.conf')).status}`);
        show(`the report: ${(await ask('/report')).status}`);
        show(`... with the key: ${await (await ask('/report?key=sesame')).text()}`);
    },

    async psgi() {
        show(await text('/'));
    },
};

button.addEventListener('click', async () => {
    button.disabled = true;
    result.textContent = '';
    try {
        await examples[button.dataset.example]();
        result.dataset.state = 'done';
    } catch (error) {
        show(String(error));
        result.dataset.state = 'failed';
    }
    button.disabled = false;
});
