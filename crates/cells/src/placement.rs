//! Assigns devices to cells. The store holds every assignment; this component proposes a cell for a new device,
//! records arrivals, and wakes the worker that moves devices out of their previous cell.

use std::sync::Arc;

use noroshi_api::{Code, Problem};
use noroshi_store::cells::{Assign, CellNum, Residence};
use noroshi_types::{AppId, DeviceId, UserId};

use crate::cell_set::CellSet;
use crate::choose::{Candidate, choose};

pub(crate) struct Placement {
    cells: Arc<CellSet>,
}

impl Placement {
    pub(crate) fn new(cells: Arc<CellSet>) -> Self {
        Self { cells }
    }

    /// The cell of an unknown device: one that answers, or else any that accepts new devices.
    pub(crate) fn cell_for_new_device(
        &self,
        app: AppId,
        device: &DeviceId,
        user: Option<&UserId>,
    ) -> Result<CellNum, Problem> {
        let key = match user {
            Some(user) => (app.0, "user", user.as_str()),
            None => (app.0, "device", device.as_str()),
        };
        let open = |must_answer: bool| {
            let cells =
                self.cells.iter().filter(move |cell| !cell.is_draining() && (!must_answer || cell.is_up()));
            cells.map(|cell| Candidate { cell: cell.num, name: cell.name(), weight: cell.weight() })
        };
        choose(&key, open(true)).or_else(|| choose(&key, open(false))).ok_or_else(|| {
            let detail = "no cell accepts new devices: all are draining or have weight 0";
            Problem::new(Code::CellUnavailable, detail)
        })
    }

    /// Assigns each device to a cell unless it has one. Answers in order.
    pub(crate) async fn assign(
        &self,
        app: AppId,
        devices: &[(DeviceId, Option<UserId>)],
    ) -> Result<Vec<Result<Residence, Problem>>, Problem> {
        let assigned = devices.iter().map(|(device, user)| {
            let fresh = self.cell_for_new_device(app, device, user.as_ref());
            fresh.map(|fresh| Assign { device: device.clone(), user: user.clone(), fresh })
        });
        let assigned = assigned.collect::<Result<Vec<_>, _>>()?;
        let answers = self.cells.store.assign(app, assigned, self.cells.state.now()).await?;
        let refused = |error| match error {
            noroshi_store::Error::Conflict => moving(),
            error => error.into(),
        };
        Ok(answers.into_iter().map(|answer| answer.map_err(refused)).collect())
    }

    pub(crate) async fn assign_one(
        &self,
        app: AppId,
        device: DeviceId,
        user: Option<UserId>,
    ) -> Result<Residence, Problem> {
        let one = self.assign(app, &[(device, user)]).await?.pop();
        one.unwrap_or_else(|| Err(Problem::internal("the store assigned nothing")))
    }

    /// Records that these devices registered in their new cell. Returns those that were assigned elsewhere meanwhile.
    pub(crate) async fn arrived(
        &self,
        app: AppId,
        devices: &[(DeviceId, Residence)],
    ) -> Result<Vec<DeviceId>, Problem> {
        let away = devices.iter().filter(|(_, residence)| residence.step.is_away());
        let away: Vec<_> = away.map(|(device, residence)| (device.clone(), residence.cell)).collect();
        let mut elsewhere = Vec::new();
        if !away.is_empty() {
            elsewhere = self.cells.store.arrived(app, away).await?;
        }
        for (_, residence) in devices {
            if let Some(Ok(previous)) = residence.previous.map(|previous| self.cells.get(previous)) {
                previous.moving.notify_one();
            }
        }
        Ok(elsewhere)
    }
}

/// For a device that is moving to another cell at this moment.
pub(crate) fn moving() -> Problem {
    let detail = "the device is moving to another cell; try again";
    Problem::new(Code::Unavailable, detail)
}
