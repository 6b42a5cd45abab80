//! The pools of reserved huge pages (hugetlb): how they stand, how large they should be, and making them so.
//!
//! Data flows one way here, too: [`View`] and [`Obstacles`] observe; [`changes`], [`persist()`] and [`MountOptions`] decide, as pure
//! functions; [`resize()`], [`mount()`] and [`Edit::apply`] act. Owns: sizes of pools, mounts of hugetlbfs, and files that hugepilot
//! writes below /etc. Never touches: transparent huge pages, and words for people, which are in `report`.
#![forbid(unsafe_code)]

mod accounts;
mod change;
mod command_line;
mod edit;
mod error;
mod mount;
mod obstacles;
mod persist;
mod request;
mod resize;
mod users;
mod view;

pub use accounts::{Owner, UnixGroup, group, owner};
pub use change::{Change, PoolSetting, changes, find};
pub use edit::Edit;
pub use error::PoolError;
pub use mount::{MountOptions, mount, place, unmount};
pub use obstacles::{Hindrance, Obstacles, ZoneObstacles};
pub use persist::{Lasting, LastingPool, NextStep, PoolSurroundings, persist};
pub use request::{Amount, SizeRequest, SizeRequestError, parse_page_size};
pub use resize::{Effort, Ended, Resized, resize};
pub use users::{User, users};
pub use view::{View, is_all_promised};

use heat::units::{BASE_PAGE, Bytes};

/// The largest block that the kernel's page allocator keeps (`MAX_PAGE_ORDER`): larger pages must be put together from several.
const LARGEST_BLOCK: Bytes = Bytes(BASE_PAGE << 10);

/// Whether pages of that size are larger than any block that the kernel keeps free: once memory is in use they are hard to come by, so
/// that they are best reserved while the machine boots. Nor can they be taken on demand.
pub fn is_giant(page_size: Bytes) -> bool {
    page_size > LARGEST_BLOCK
}
