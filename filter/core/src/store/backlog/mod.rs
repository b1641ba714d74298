//! STUB
#![allow(missing_docs, unused)]
use super::Op;
use super::table::SharedData;
pub struct Backlog {
    v: Vec<Op>,
}
pub enum Kept {
    Durable,
    InMemory(String),
    Dropped(Op),
}
impl Backlog {
    pub fn new(_store: &str, _holder: u64) -> Self {
        Self { v: vec![] }
    }
    pub fn defer(&mut self, sd: &mut dyn SharedData, op: Op, durable: bool, now: u64) -> Kept {
        Kept::Durable
    }
    pub fn due(&mut self, now: u64, most: usize) -> Vec<(u64, Op)> {
        vec![]
    }
    pub fn done(&mut self, sd: &mut dyn SharedData, id: u64) {}
    pub fn again(&mut self, id: u64, now: u64) {}
    pub fn hurry(&mut self, now: u64) {}
    pub fn tick(&mut self, sd: &mut dyn SharedData, now: u64) -> usize {
        0
    }
    pub fn close(&mut self, sd: &mut dyn SharedData) {}
    pub fn len(&self) -> usize {
        0
    }
    pub fn is_empty(&self) -> bool {
        true
    }
    pub fn fill_permille(&self) -> u64 {
        0
    }
    pub fn damaged(&self) -> u64 {
        0
    }
}
