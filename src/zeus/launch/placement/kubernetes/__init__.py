"""`zeus run --on kubernetes`: writes manifests for a Job, a CronJob or a PyTorchJob. It applies nothing."""
