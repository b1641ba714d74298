//! stub: tenant
