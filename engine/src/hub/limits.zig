//! Limits of channels, with their reasons. The defaults of the first four are from PAGI's design.

/// Bytes of one message in the form that processes exchange. PAGI's design demands at least 1 MiB.
pub const message_bytes_max = 1 << 20;
/// Bytes of the name of a channel or a topic.
pub const name_bytes_max = 100;
/// Messages that wait in one mailbox. With a full mailbox `publish` drops the message, and `send` fails.
pub const mailbox_messages_max = 100;
/// Milliseconds after which a waiting message is dropped.
pub const message_life_ms = 60_000;
/// Bytes of all messages in the mailboxes of one node, beyond which each mailbox counts as full. A message
/// that waits in several mailboxes is in memory once.
pub const mailboxes_bytes_max = 64 << 20;
/// Topics that one channel may subscribe to. An application may make their names from bytes of clients.
pub const channel_topics_max = 1000;
/// Bytes of the names of all channels that one publication excludes.
pub const exclude_bytes_max = 64 << 10;
/// Unanswered requests of one node, each of which has a Future in Perl.
pub const requests_max = 10_000;
/// Milliseconds until an unanswered request fails. A client's request must not wait longer for a hub that is
/// stuck.
pub const request_ms = 5000;
/// Bytes that wait for a hub that does not read: room for the subscriptions of a node that joins again.
pub const node_output_bytes_max = 16 << 20;
/// Bytes that wait in the hub for one node. A node with more is cut: it joins again, and has lost messages.
pub const hub_queue_bytes_max = 16 << 20;
/// Bytes that wait in the hub for all nodes. With more, the node with the most is cut.
pub const hub_bytes_max = 256 << 20;
/// Nodes of one hub: interpreters of the servers on this machine that share it, twice during a hot upgrade.
pub const nodes_max = 2200;
/// Topics that one node may subscribe to.
pub const node_topics_max = 1_000_000;
/// Shares of the hub's own nodes: one without a prefix, and the mounts of two programs during a hot upgrade.
/// Nodes of other hubs may have one more.
pub const shares_max = 32;
/// Messages and changes of subscriptions of all nodes together that are unanswered.
pub const errands_max = 100_000;
/// Nodes whose channels an engine's node may name: interpreters that came and went while it lives. Channels
/// of older ones are counted without a name.
pub const voices_max = 1024;
/// Topics with history in one hub.
pub const history_topics_max = 100_000;
/// Bytes of the entries of all topics in one hub, with `entry_bytes` for each. Each node that reads a topic
/// has a copy of its history.
pub const histories_bytes_max = 64 << 20;
/// Bytes of the copies of histories at one node, with `entry_bytes` for each entry and with kept frames: four
/// times the hub's own limit. All mounts of a server share one engine, which is a node, and its copies keep
/// entries that the hub has dropped.
pub const copies_bytes_max = 256 << 20;
/// Bytes of frames at one node that only connections hold, because the copies have lost them. With more, the
/// connections with the oldest frames are cut: a client that does not read keeps up to 7 MiB (an event of 1
/// MiB of empty lines) in memory until its deadline.
pub const lingering_bytes_max = 128 << 20;
/// Bytes that an entry costs beside its content.
pub const entry_bytes = 48;
/// Bytes of one node that are read before other nodes have their turn.
pub const turn_bytes_max = 256 << 10;
/// Bytes of all nodes of a confined mount that are read before others have their turn; at least 4 KiB of
/// each.
pub const mount_turn_bytes_max = 1 << 20;
/// Bytes that wait for a node, beyond which further entries stay in their histories, where a slow node costs
/// no memory for them.
pub const follow_bytes_max = 128 << 10;
/// Topics that one connection may read. A turn looks at each.
pub const mailbox_readers_max = 32;
/// Requests of all nodes that wait for Redis. Each event of Redis is compared with them.
pub const waiting_requests_max = 10_000;
/// Names of channels in an answer about subscribers. Applications show a few names, and the number of others.
pub const present_names_max = 100;
/// Unanswered questions about subscribers, of all nodes.
pub const rolls_max = 1000;
/// Milliseconds that nodes have to answer a question about subscribers; hubs of other machines have twice as
/// long.
pub const roll_ms = 1000;
