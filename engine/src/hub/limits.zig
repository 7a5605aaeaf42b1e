//! The limits of channels, with their reasons. PAGI's design gives the defaults of the first four.

/// Bytes of one message, as it is sent between processes. PAGI's design: 1 MiB has to be possible.
pub const message_bytes_max = 1 << 20;
/// Bytes of the name of a channel or a topic.
pub const name_bytes_max = 100;
/// Messages that wait in one mailbox. Beyond: `publish` drops silently, `send` fails.
pub const mailbox_messages_max = 100;
/// Milliseconds after which a message that waits in a mailbox is gone.
pub const message_life_ms = 60_000;
/// Bytes of all messages in the mailboxes of one node: beyond, each mailbox counts as full. A message that
/// waits in many mailboxes is in memory once.
pub const mailboxes_bytes_max = 64 << 20;
/// Topics that one channel subscribes to: an application may make their names of what clients send.
pub const channel_topics_max = 1000;
/// Bytes of the names of all channels that a publication excludes.
pub const exclude_bytes_max = 64 << 10;
/// Requests of one node without an answer. Each has a Future in Perl.
pub const requests_max = 10_000;
/// Milliseconds until a request without an answer fails. No request of a client is to wait longer for a hub
/// that is stuck.
pub const request_ms = 5000;
/// Bytes that wait for a hub that does not read. Room for the subscriptions of a node that joins again.
pub const node_output_bytes_max = 16 << 20;
/// Bytes that wait in the hub for one node. A node beyond is cut: it joins again, and has lost messages.
pub const hub_queue_bytes_max = 16 << 20;
/// Bytes that wait in the hub for all nodes: beyond, the node with the most is cut.
pub const hub_bytes_max = 256 << 20;
/// Nodes of one hub: interpreters of the servers on this machine that share it, during a hot upgrade twice.
pub const nodes_max = 2200;
/// Topics that one node subscribes to.
pub const node_topics_max = 1_000_000;
/// Shares of the hub's own nodes: one without prefix, and those of all mounts of two programs, during a hot
/// upgrade. Nodes of other hubs may have one more.
pub const shares_max = 32;
/// Messages and changes of subscriptions that nodes have yet to answer, of all nodes together.
pub const errands_max = 100_000;
/// Nodes whose channels an engine's node names: interpreters that have come and gone while it lives. Channels
/// of the oldest are counted and have no name.
pub const voices_max = 1024;
/// Topics with history in one hub.
pub const history_topics_max = 100_000;
/// Bytes of the entries of all topics in one hub, with what each entry costs beside. Each node that reads a
/// topic has a copy of its history.
pub const histories_bytes_max = 64 << 20;
/// Bytes of these copies at one node, with what each entry costs beside and with the frames that are kept for
/// further readers: four times as much as the hub keeps. All mounts of a server have one engine, which is a
/// node, and copies stay there when the hub has forgotten its entries for others.
pub const copies_bytes_max = 256 << 20;
/// Bytes of frames at one node that connections are still being sent and the copies have lost. Beyond, the
/// connections that have the oldest are cut: a client that does not read keeps up to 7 MiB (an event of
/// 1 MiB of empty lines) from being freed until its deadline.
pub const lingering_bytes_max = 128 << 20;
/// The cost of an entry beside its bytes.
pub const entry_bytes = 48;
/// Bytes of one node that are read before others have their turn.
pub const turn_bytes_max = 256 << 10;
/// Bytes of all nodes of a confined mount that are read before others have theirs; of each 4 KiB at least.
pub const mount_turn_bytes_max = 1 << 20;
/// Bytes that wait for a node, beyond which entries of topics wait in their histories: a node that reads
/// slowly costs no memory for them.
pub const follow_bytes_max = 128 << 10;
/// Topics that one connection reads. A turn looks at each.
pub const mailbox_readers_max = 32;
/// Requests of all nodes that wait for something from Redis. Each thing that comes is compared with them.
pub const waiting_requests_max = 10_000;
/// Names of channels in an answer who is subscribed. Applications show a few, and count the others.
pub const present_names_max = 100;
/// Questions who is subscribed, of all nodes, without their answers.
pub const rolls_max = 1000;
/// Milliseconds in which the nodes of a hub have to tell who is subscribed; hubs of other machines have twice
/// as much.
pub const roll_ms = 1000;
