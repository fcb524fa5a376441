//! The choice of a worker, and the list of them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rpc_core::handoff::set_core;
use rpc_core::quota::PeerKey;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::RdmaConfig;
use crate::testing::scripted::ScriptedDevice;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

fn worker(device: &Device) -> Worker {
    let config = RdmaConfig { receive_slots: 64, ..RdmaConfig::default() };
    Worker::start(device, &config).unwrap()
}

fn find(workers: &WorkerSet, name: &str, make: impl Fn() -> Result<Worker, String>) -> Arc<Worker> {
    workers.find(name, 1, |_, _| make(), |_| None::<()>).unwrap().0
}

#[test]
fn making_a_worker_blocks_no_reader_or_other_device() {
    let (runtime, workers) = (Runtime::new().unwrap(), Arc::new(WorkerSet::default()));
    let (began, begins) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = Mutex::new(may_go_on);
    let made = thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let _inside = runtime.enter();
            find(&workers, "slow", || {
                began.send(()).unwrap();
                may_go_on.lock().recv_timeout(LIMIT).unwrap();
                Ok(worker(&ScriptedDevice::new().device()))
            })
        });
        begins.recv_timeout(LIMIT).unwrap();
        let (done, is_done) = mpsc::channel();
        let beside = Arc::clone(&workers);
        let handle = runtime.handle().clone();
        // It is not of the scope: a test that fails must end all the same.
        thread::spawn(move || {
            let _inside = handle.enter();
            let seen = beside.map(|device, _, _| device.to_owned());
            find(&beside, "other", || Ok(worker(&ScriptedDevice::new().device())));
            done.send(seen).unwrap();
        });
        let seen = is_done.recv_timeout(LIMIT / 10);
        let second = scope.spawn(|| {
            let _inside = runtime.enter();
            find(&workers, "slow", || panic!("there is one"))
        });
        go_on.send(()).unwrap();
        assert_eq!(seen.expect("neither had to wait"), [""; 0]);
        [slow.join().unwrap(), second.join().unwrap()]
    });
    assert!(Arc::ptr_eq(&made[0], &made[1]), "a device has one lane");
    let mut names = workers.map(|device, number, _| (device.to_owned(), number));
    names.sort();
    assert_eq!(names, [("other".to_owned(), 0), ("slow".to_owned(), 0)]);
}

#[tokio::test]
async fn a_worker_that_cannot_be_made_is_tried_again() {
    let workers = WorkerSet::default();
    let refused = workers.find("sim", 1, |_, _| Err("no memory"), |_| None::<()>);
    assert_eq!(refused.map(drop), Err("no memory"));
    find(&workers, "sim", || Ok(worker(&ScriptedDevice::new().device())));
}

#[tokio::test]
async fn a_worker_of_an_opening_that_is_lost_meanwhile_is_not_kept() {
    let workers = WorkerSet::default();
    let openings = [ScriptedDevice::new().device(), ScriptedDevice::new().device()];
    let made = Mutex::new(0);
    let found = find(&workers, openings[0].name(), || {
        let mut made = made.lock();
        let worker = worker(&openings[*made]);
        *made += 1;
        if *made == 1 {
            workers.drop_workers_of(&openings[0]);
        }
        Ok(worker)
    });
    assert!(found.shared.attachment.device().is_same(&openings[1]));
    assert_eq!(workers.map(|_, number, _| number), [0]);
}

/// Runs `test` on a core, whose runtime ends after it.
fn on_core<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let run = || {
        set_core(4, None);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        test()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[tokio::test]
async fn a_core_has_a_worker_of_its_own_until_it_ends() {
    let (workers, device) = (WorkerSet::default(), ScriptedDevice::new().device());
    let make = |sibling: Option<&Worker>, number| match sibling {
        Some(sibling) => sibling.start_sibling(number, false),
        None => Ok(worker(&device)),
    };
    let number = || workers.find(device.name(), 1, make, |_| None::<()>).unwrap().0.shared.number;
    let numbers = || workers.map(|_, number, _| number);
    assert_eq!(number(), 0);
    on_core(|| {
        assert!(!workers.begins_trimming(device.name(), 1), "it has none yet");
        assert_eq!([number(), number()], [1, 1]);
        assert!(workers.begins_trimming(device.name(), 1));
        assert!(workers.trim(device.name(), 1), "it lives");
        assert_eq!(numbers(), [0, 1]);
    });
    assert_eq!(number(), 0);
    assert!(!workers.trim(device.name(), 1));
    assert_eq!(numbers(), [0]);
}

/// A core that a handler blocks does not see its READs end, and holds their bytes.
#[tokio::test]
async fn cores_divide_the_bytes_of_reads() {
    let device = ScriptedDevice::new().device();
    let first = worker(&device);
    let reads = |worker: &Worker| Arc::clone(&worker.shared.reads);
    assert!(Arc::ptr_eq(&reads(&first), &reads(&first.start_sibling(1, false).unwrap())));
    on_core(|| {
        let isolated = first.start_sibling(2, false).unwrap();
        assert!(!Arc::ptr_eq(&reads(&first), &reads(&isolated)));
        assert!(Arc::ptr_eq(&reads(&isolated), &reads(&isolated.start_sibling(3, false).unwrap())));
        let peer = PeerKey::new(None);
        let take = |worker: &Worker| reads(worker).share(peer).try_take(3 << 20);
        // There are 8 MiB, and a quarter of that for one of four cores.
        assert_eq!([take(&isolated).is_some(), take(&first).is_some()], [false, true]);
    });
}

#[tokio::test]
async fn a_core_whose_worker_cannot_be_made_shares_another() {
    let (workers, device) = (WorkerSet::default(), ScriptedDevice::new().device());
    let make = |_: Option<&Worker>, _| Err("no memory");
    let number = || {
        let found = workers.find(device.name(), 1, make, |_| None::<()>);
        found.map(|(worker, _)| worker.shared.number)
    };
    assert_eq!(on_core(number), Err("no memory"), "there is no other");
    let first = find(&workers, device.name(), || Ok(worker(&device)));
    assert_eq!([number(), on_core(number)], [Ok(first.shared.number); 2]);
}

/// Four places each.
fn whole(counts: &[usize]) -> Vec<Load> {
    let load = |&count| Load { connections: count, has_room: count < 4, is_worn: false };
    counts.iter().map(load).collect()
}

fn worn(connections: usize) -> Load {
    Load { connections, has_room: true, is_worn: true }
}

/// No more than are spread over.
fn fixed(spread: usize) -> Counts {
    let spread = spread.max(1);
    Counts { spread, max: spread }
}

#[test]
fn workers_are_made_as_connections_come_and_then_filled_evenly() {
    let mut counts: Vec<usize> = Vec::new();
    for _ in 0..10 {
        match choose(whole(&counts), fixed(3)) {
            Choice::Existing(index) => counts[index] += 1,
            Choice::New => counts.push(1),
        }
    }
    assert_eq!(counts, [4, 3, 3]);
    counts[1] = 0;
    assert_eq!(choose(whole(&counts), fixed(3)), Choice::Existing(1));
}

#[test]
fn another_worker_is_made_when_all_are_full() {
    let counts = Counts { spread: 1, max: 3 };
    assert_eq!(choose(whole(&[3]), counts), Choice::Existing(0));
    assert_eq!(choose(whole(&[4]), counts), Choice::New);
    assert_eq!(choose(whole(&[4, 1]), counts), Choice::Existing(1));
    assert_eq!(choose(whole(&[3, 4]), counts), Choice::Existing(0));
    assert_eq!(choose(whole(&[4, 4]), counts), Choice::New);
    assert_eq!(choose(whole(&[4, 4, 4]), counts), Choice::Existing(0), "which says why not");
    assert_eq!(choose(whole(&[4]), fixed(1)), Choice::Existing(0), "for want of memory");
    assert_eq!(choose(whole(&[3, 1]), counts), Choice::Existing(0), "the second is left");
}

#[test]
fn a_worn_worker_is_replaced_and_only_so_often() {
    let load = |connections| whole(&[connections])[0];
    assert_eq!(choose([worn(0)], fixed(1)), Choice::New);
    assert_eq!(choose([worn(5), load(3)], fixed(1)), Choice::Existing(1));
    assert_eq!(choose([worn(5), worn(3)], fixed(1)), Choice::Existing(1));
    let two = [worn(5), load(3)];
    assert_eq!(choose(two, fixed(2)), Choice::New, "as if the worn one were not there");
    let four = [worn(5), load(3), worn(1), worn(2)];
    assert_eq!(choose(four, fixed(2)), Choice::Existing(1));
}

#[test]
fn a_worker_without_connections_is_used_before_another_is_made() {
    assert_eq!(choose(whole(&[1, 0]), fixed(8)), Choice::Existing(1));
    assert_eq!(choose([], fixed(0)), Choice::New, "there has to be one");
    assert_eq!(choose(whole(&[3]), fixed(0)), Choice::Existing(0));
}
