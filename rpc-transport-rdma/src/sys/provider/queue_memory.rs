//! Memory that a driver in user space takes for its queues, which counts as locked. Pure.
//!
//! The sums are libmlx5's (rdma-core, `providers/mlx5/verbs.c` and `srq.c`). Other hardware has
//! queues in user memory too, of other sizes: there they are an estimate. Soft-RoCE's queues are
//! the kernel's, and not locked.

/// The unit that memory is locked by.
const PAGE_LEN: u64 = 4096;

/// A completion (`mlx5_alloc_cq_buf`).
const COMPLETION_LEN: u64 = 64;

/// A receive with one segment (`mlx5_alloc_srq_buf`).
const RECEIVE_LEN: u64 = 32;

/// The head of any request, which has room for a bind (`_sq_overhead`: 16 + 48 + 64 + 64).
const REQUEST_HEAD_LEN: u64 = 192;

/// One segment of a request, and the head of bytes that are sent inline.
const SEGMENT_LEN: u64 = 16;
const INLINE_HEAD_LEN: u64 = 4;

/// Requests begin at multiples of this (`MLX5_SEND_WQE_BB`).
const REQUEST_UNIT: u64 = 64;

/// Bytes of a completion queue with room for so many completions.
pub(crate) fn completion_queue_len(completions: u32) -> u64 {
    pages((u64::from(completions) + 1).next_power_of_two() * COMPLETION_LEN)
}

/// Bytes of a shared receive queue of so many receives: twice as many and one, since those of
/// queue pairs in error wait in the same memory (`mlx5_alloc_srq_buf`).
pub(crate) fn shared_receive_queue_len(receives: u32) -> u64 {
    pages((2 * u64::from(receives) + 1).next_power_of_two() * RECEIVE_LEN)
}

/// Bytes of a queue pair of so many requests, which receives from a shared receive queue
/// (`mlx5_calc_send_wqe`, `mlx5_calc_sq_size`).
pub(crate) fn queue_pair_len(requests: u32, inline_max: u32) -> u64 {
    let inline = match inline_max {
        0 => 0,
        len => (INLINE_HEAD_LEN + u64::from(len)).next_multiple_of(SEGMENT_LEN),
    };
    let request = REQUEST_HEAD_LEN + inline.max(SEGMENT_LEN);
    let request = request.next_multiple_of(REQUEST_UNIT);
    pages((u64::from(requests) * request).next_power_of_two())
}

/// Bytes of the pages that so many bytes take.
pub(crate) fn pages(len: u64) -> u64 {
    len.next_multiple_of(PAGE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_what_libmlx5_allocates() {
        assert_eq!(queue_pair_len(97, 220), 64 << 10);
        assert_eq!(queue_pair_len(97, 124), 32 << 10);
        assert_eq!(queue_pair_len(51, 124), 16 << 10);
        assert_eq!(queue_pair_len(9, 0), 4 << 10);
        assert_eq!(queue_pair_len(5, 0), 4 << 10);
        assert_eq!(queue_pair_len(25, 0), 8 << 10);
        assert_eq!(completion_queue_len(30_465), 2 << 20);
        assert_eq!(completion_queue_len(4096), 512 << 10);
        assert_eq!(completion_queue_len(4095), 256 << 10);
        assert_eq!(shared_receive_queue_len(1024), 128 << 10);
        assert_eq!(shared_receive_queue_len(512), 64 << 10);
    }
}
