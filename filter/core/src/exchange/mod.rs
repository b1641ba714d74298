//! stub: exchange
