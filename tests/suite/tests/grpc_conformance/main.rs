//! ConnectRPC's conformance cases for gRPC, by their names there, with clients and servers of our
//! own: its runner is in no registry that a build may use.
//!
//! `responses` are a farcall stub's at `grpc://`, whose server answers what it is told to;
//! `requests` are at a farcall server's port, from a client that sends what it is told to; `calls`
//! are those of both with each other and with tonic. What gRPC leaves open has several codes.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

mod calls;
mod raw;
mod requests;
mod responses;
mod service;
