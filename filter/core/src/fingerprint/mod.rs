//! stub, replaced by the fingerprint module
use crate::plan::DigestAlgorithm;
/// Fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// d
    pub digest: [u8; 32],
    /// a
    pub algorithm: DigestAlgorithm,
    /// f
    pub form: Form,
    /// v
    pub version: u8,
    /// s
    pub settings: [u8; 8],
    /// l
    pub length: u64,
    /// m
    pub media_type: String,
    /// p
    pub principal: Option<[u8; 8]>,
}
/// Form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// e
    Empty,
    /// r
    Raw,
    /// j
    Json,
    /// f
    FormUrlencoded,
    /// m
    Multipart,
    /// c
    ContentDigest,
    /// u
    Unread,
}
