"""The daemon's HTTP server: health for the supervisor and the load balancer, and whatever routes the channels bring."""
