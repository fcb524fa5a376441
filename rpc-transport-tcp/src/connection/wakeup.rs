//! The notification of the connection's task.
//!
//! Senders notify, and one task waits. It waits anew in each of its polls, most of which other
//! events cause. tokio's `Notify` takes a lock in each of them for the list of its waiters.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;

/// A notification for one task. It stays until the task takes it. Of several tasks that wait, the
/// one that was polled last is woken: the one that has taken the connection over.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    is_due: AtomicBool,
    waker: AtomicWaker,
}

impl Wakeup {
    /// Notifies the task, which may be running.
    pub(crate) fn notify_one(&self) {
        self.is_due.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Waits for a notification.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: dropped before it is ready, it takes no notification.
    pub(crate) async fn notified(&self) {
        poll_fn(|context| {
            if self.take() {
                return Poll::Ready(());
            }
            self.waker.register(context.waker());
            // One that came in between has woken the waker before.
            if self.take() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn take(&self) -> bool {
        self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;

    use super::*;

    /// No wait of these tests is longer.
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

    #[test]
    fn a_notification_waits_for_its_task_and_is_taken_once() {
        let wakeup = Wakeup::default();
        assert_eq!(wakeup.notified().now_or_never(), None);
        wakeup.notify_one();
        wakeup.notify_one();
        assert_eq!(wakeup.notified().now_or_never(), Some(()));
        assert_eq!(wakeup.notified().now_or_never(), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_notification_from_another_thread_is_lost() {
        let (there, back) = (Arc::new(Wakeup::default()), Arc::new(Wakeup::default()));
        let echo = tokio::spawn({
            let (there, back) = (Arc::clone(&there), Arc::clone(&back));
            async move {
                for _ in 0..10_000 {
                    there.notified().await;
                    back.notify_one();
                }
            }
        });
        let all = async {
            for _ in 0..10_000 {
                there.notify_one();
                back.notified().await;
            }
            echo.await.unwrap();
        };
        tokio::time::timeout(LIMIT, all).await.expect("no notification is lost");
    }
}
