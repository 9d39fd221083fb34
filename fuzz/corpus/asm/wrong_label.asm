ja nowhere
