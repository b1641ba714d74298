//! The protobuf messages of a record. Field numbers are part of the format: never reuse one.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Record {
    #[prost(fixed64, tag = "1")]
    pub(super) incarnation: u64,
    #[prost(uint32, tag = "2")]
    pub(super) counter: u32,
    #[prost(uint64, tag = "3")]
    pub(super) generation: u64,
    #[prost(uint32, tag = "4")]
    pub(super) state: u32,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) owner: Vec<u8>,
    /// End of the lease, or deadline.
    #[prost(uint64, tag = "6")]
    pub(super) until: u64,
    /// When the state began.
    #[prost(uint64, tag = "7")]
    pub(super) at: u64,
    #[prost(message, optional, tag = "8")]
    pub(super) outcome: Option<Outcome>,
    #[prost(message, optional, tag = "9")]
    pub(super) evidence: Option<Evidence>,
    #[prost(string, tag = "10")]
    pub(super) reason: String,
    #[prost(message, optional, tag = "11")]
    pub(super) fingerprint: Option<Fingerprint>,
    #[prost(string, tag = "12")]
    pub(super) schema_version: String,
    #[prost(bytes = "vec", tag = "13")]
    pub(super) tenant: Vec<u8>,
    #[prost(string, tag = "14")]
    pub(super) route: String,
    #[prost(string, tag = "15")]
    pub(super) attempt: String,
    #[prost(string, tag = "16")]
    pub(super) traceparent: String,
    #[prost(uint64, tag = "17")]
    pub(super) claimed_at: u64,
    #[prost(uint64, tag = "18")]
    pub(super) last_seen: u64,
    #[prost(uint64, tag = "19")]
    pub(super) replay_ms: u64,
    #[prost(uint64, tag = "20")]
    pub(super) tombstone_ms: u64,
    #[prost(message, repeated, tag = "21")]
    pub(super) events: Vec<Event>,
    #[prost(uint32, tag = "22")]
    pub(super) dropped: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Outcome {
    #[prost(uint32, tag = "1")]
    pub(super) status: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) result: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(super) body_length: u64,
    #[prost(uint64, tag = "4")]
    pub(super) wall_first_response: u64,
    #[prost(uint32, tag = "5")]
    pub(super) replay: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Evidence {
    #[prost(uint32, tag = "1")]
    pub(super) status: u32,
    #[prost(string, tag = "2")]
    pub(super) details: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) result: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Fingerprint {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) digest: Vec<u8>,
    #[prost(uint32, tag = "2")]
    pub(super) algorithm: u32,
    #[prost(uint32, tag = "3")]
    pub(super) form: u32,
    #[prost(uint32, tag = "4")]
    pub(super) version: u32,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) settings: Vec<u8>,
    #[prost(uint64, tag = "6")]
    pub(super) length: u64,
    #[prost(string, tag = "7")]
    pub(super) media_type: String,
    #[prost(bytes = "vec", tag = "8")]
    pub(super) principal: Vec<u8>,
    /// Only with the form `head`.
    #[prost(uint64, tag = "9")]
    pub(super) head_octets: u64,
    /// `Content-Length` and one, so that 0 is none.
    #[prost(uint64, tag = "10")]
    pub(super) head_declared: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Event {
    #[prost(uint64, tag = "1")]
    pub(super) at: u64,
    #[prost(uint32, tag = "2")]
    pub(super) from: u32,
    #[prost(uint32, tag = "3")]
    pub(super) to: u32,
    #[prost(uint32, tag = "4")]
    pub(super) source: u32,
    #[prost(fixed64, tag = "5")]
    pub(super) write: u64,
    #[prost(string, tag = "6")]
    pub(super) operator: String,
    #[prost(message, optional, tag = "7")]
    pub(super) evidence: Option<Evidence>,
}
