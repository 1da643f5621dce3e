"""The mathematics: objectives, rectifiers, task vectors, UWC; no Ray, no DeepSpeed. It imports common to inference."""
