package storetest

func transactionFaults() []fault {
	return []fault{
		brokenDatabase("a key out of sight is called absent", faults{saysNothing: true},
			"Claim/transactional key in progress is out of sight",
			"TakeOver/transactional take-over is out of sight",
			"Claim/key in progress is not waited for",
			"Claim/one of many wins",
		),
		brokenDatabase("leased claims know no transactions", faults{leasedIsBlind: true},
			"Claim/leased claim of a transactional key in progress"),
		brokenDatabase("Look sees transactions", faults{showsInFlight: true},
			"Look/transactional attempt in flight is out of sight or absent"),
		brokenDatabase("transactions are not fenced", faults{unfenced: true},
			"Late/completes beside a transactional take-over, and one wins"),
		brokenDatabase("Renew loses claims early", faults{reportsLost: true},
			"Renew/does not wait for a transactional take-over"),
		brokenDatabase("Release leaves the row that was taken over", faults{leavesRowOnTakeOver: true},
			"Release/of a take-over makes the key absent",
			"Release/of a take-over of an expired key makes the key absent",
			"Late/cannot complete a key that another released",
		),
		brokenDatabase("Drain waits for attempts", faults{drainWaits: true},
			"Drain/attempt that holds its key is not waited for"),
		brokenDatabase("Drain closes the store", faults{drainCloses: true},
			"Drain/store can be used on"),
	}
}

func effectsFaults() []fault {
	return []fault{
		brokenDatabase("effects are seen at once", faults{writesAtOnce: true},
			"Effects/commit with the record, not before", "Effects/are undone by Release"),
		brokenDatabase("effects need a reply", faults{dropsIfNotKept: true},
			"Effects/commit with a reply that is not kept"),
		brokenDatabase("Release commits", faults{keepsOnRelease: true},
			"Effects/are undone by Release"),
		brokenDatabase("errors commit", faults{keepsOnError: true},
			"Effects/are undone by an error that is kept"),
		brokenDatabase("errors never commit", faults{neverKeepsOnError: true},
			"Effects/are kept with an error where asked"),
		brokenDatabase("readable form undoes effects", faults{failsOnReadable: true},
			"Effects/outlive a readable form that cannot be had"),
		brokenDatabase("failed transactions commit", faults{commitsFailed: true},
			"Effects/of a failed transaction cannot be completed",
			"Effects/of a failed transaction cannot be kept with an error"),
		brokenDatabase("failed transactions have no error of their own", faults{rejectsWithoutName: true},
			"Effects/of a failed transaction cannot be completed",
			"Effects/of a failed transaction cannot be kept with an error"),
		brokenDatabase("failed transactions keep no error", faults{rejectsError: true},
			"Effects/of a failed transaction are undone by an error that is kept"),
		brokenDatabase("failed transactions are not released", faults{sticksAfterFailure: true},
			"Effects/of a failed transaction are undone by Release"),
		brokenDatabase("fenced transactions commit", faults{keepsOnFence: true},
			"Effects/of a take-over commit only if it wins"),
	}
}
